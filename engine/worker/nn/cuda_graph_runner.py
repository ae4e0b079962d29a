"""Decode steps as graphs: captured once for each size of batch and each context bucket, and replayed without
asking the device.

Between the one copy that brings a step's rows and the one that takes its ids nothing waits for the device: shapes
depend on the size and the bucket alone, so on a GPU a step is one launch. What the step computes is a plain function of
torch; where there are no graphs (a CPU, or a capture that failed) it is called as such. Knows no model.

A batch is filled up to its size with rows that go to a slot of nobody's.
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

SHORTEST = 512  # positions of the shortest context bucket: masked ones are read all the same
WARM_S = 90.0  # seconds of a start, for each kind of step: later graphs are captured when they are first wanted
log = logging.getLogger(__name__)

Compute = Callable[[DecodeBatch, int], Tensor]
"""Ids [batch, n] of a step's rows, whose contexts all fit into a bucket of so many positions."""


class CudaGraphRunner:
    """Steps of at most ``slots`` rows over caches of ``length`` positions, which have one slot more: nobody's.

    What looks back at each row's own positions, and no further, is not ``bucketed``: one graph a size serves all.
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
        """One step; ids [inputs, n]."""
        size = next(size for size in self.sizes if size >= len(inputs))
        bucket = next(bucket for bucket in self.context_buckets if bucket > max(one.start for one in inputs))
        table = packed([*inputs, *[self._nobody] * (size - len(inputs))])
        (ids,) = self.captured((size, bucket), table)
        return to_host(ids)[: len(inputs)]

    def computed(self, table: Tensor, bucket: int) -> Tensor:
        """The step itself, which is what a graph captures: ids of a table [10, size] on the device."""
        return self._compute(DecodeBatch.of(table, self._max_top_k), bucket)

    def _step(self, shape: tuple[int, int], table: Tensor) -> tuple[Tensor]:
        return (self.computed(table, shape[1]),)

    def _idle(self, shape: tuple[int, int]) -> tuple[NDArray[np.int64]]:
        return (packed([self._nobody] * shape[0]),)

    def warm(self, most_s: float | None = None) -> None:
        """Capture ahead, the shortest contexts first, for so long (WARM_S). Raises what a device out of memory
        raises."""
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
        log.info("%s: %d of %d graphs in %.1f s and %.0f MB", self._name, captured, whole, took_s, more / 2**20)


def doubled(first: int, last: int) -> list[int]:
    """Numbers that double, from the first up to and with the last."""
    found = [first]
    while found[-1] < last:
        found.append(min(2 * found[-1], last))
    return [min(first, last)] if last <= first else found
