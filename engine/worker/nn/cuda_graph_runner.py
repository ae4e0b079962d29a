"""Decode steps as CUDA graphs: captured once per batch size and context bucket, then replayed.

A step copies its inputs to the device once and its ids back once; nothing in between waits for the device. Shapes
depend only on the batch size and the bucket, so on a GPU a step is one launch. Without graphs (on a CPU, or after a
failed capture) the step's function is called directly.

A batch is padded to its size with rows of an unused slot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn.captured import Captured
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput, packed
from engine.worker.nn.device import to_host
from engine.worker.nn.sampling_params import SamplingParams

SHORTEST = 512  # positions of the smallest context bucket; masked positions are read as well
WARM_S = 90.0  # maximum seconds of startup per kind of step; the remaining graphs are captured on first use
log = logging.getLogger(__name__)

Compute = Callable[[DecodeBatch, int], Tensor]
"""Computes the ids [batch, n] of a step whose contexts fit into a bucket of the given number of positions."""


class CudaGraphRunner:
    """Runs steps of at most ``slots`` rows over caches of ``length`` positions. The cache has one more slot for padding
    rows.

    Without ``bucketed``, one graph per batch size serves all context lengths; for attention that reads only each row's
    own positions.
    """

    def __init__(
        self,
        name: str,
        compute: Compute,
        slots: int,
        length: int,
        max_top_k: int,
        device: torch.device,
        bucketed: bool = True,
    ) -> None:
        self.sizes = doubled(1, slots)
        self.context_buckets = doubled(SHORTEST, length) if bucketed else [length]
        self._name = name
        self._compute = compute
        self._max_top_k = max_top_k
        self._device = device
        self._nobody = DecodeInput(slots, 0, 0, 0, 0.0, SamplingParams(0))
        self.captured = Captured(name, self._step, self._idle, device)

    def __call__(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int64]:
        """Run one step. Returns ids [inputs, n]."""
        size = next(size for size in self.sizes if size >= len(inputs))
        bucket = next(bucket for bucket in self.context_buckets if bucket > max(one.start for one in inputs))
        table = packed([*inputs, *[self._nobody] * (size - len(inputs))])
        (ids,) = self.captured((size, bucket), table)
        return to_host(ids)[: len(inputs)]

    def computed(self, table: Tensor, bucket: int) -> Tensor:
        """Compute the step: ids for a table [10, size] on the device. This function is captured."""
        return self._compute(DecodeBatch.of(table, self._max_top_k), bucket)

    def _step(self, shape: tuple[int, int], table: Tensor) -> tuple[Tensor]:
        return (self.computed(table, shape[1]),)

    def _idle(self, shape: tuple[int, int]) -> tuple[NDArray[np.int64]]:
        return (packed([self._nobody] * shape[0]),)

    def warm(self, most_s: float | None = None) -> None:
        """Capture graphs in advance for at most ``most_s`` seconds (default WARM_S), shortest contexts first.

        Raises torch's error if the device runs out of memory.
        """
        most_s = WARM_S if most_s is None else most_s
        if not self.captured.captures:
            return
        began_s, before = time.monotonic(), torch.cuda.memory_reserved(self._device)
        for key in ((size, bucket) for bucket in self.context_buckets for size in self.sizes):
            if time.monotonic() - began_s < most_s:
                self.captured.warm([key])
        captured = sum(graph is not None for graph in self.captured.graphs.values())
        took_s, more = time.monotonic() - began_s, torch.cuda.memory_reserved(self._device) - before
        whole = len(self.sizes) * len(self.context_buckets)
        log.info(
            "%s: captured %d of %d CUDA graphs in %.1f s, using %.0f MB",
            self._name,
            captured,
            whole,
            took_s,
            more / 2**20,
        )


def doubled(first: int, last: int) -> list[int]:
    """Return numbers that double from ``first``, ending with ``last``."""
    found = [first]
    while found[-1] < last:
        found.append(min(2 * found[-1], last))
    return [min(first, last)] if last <= first else found
