"""Computations with few shapes as CUDA graphs: captured once per shape, then replayed in one launch.

Without graphs (on a CPU, or after a failed capture) the function is called directly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn.device import to_device
from engine.worker.out_of_memory import out_of_memory

log = logging.getLogger(__name__)

Given = Tensor | NDArray[Any]
RETRY_S = 10.0
"""Seconds before a capture that ran out of memory is retried, because each try delays other requests."""


class Captured:
    """Calls ``compute(key, *inputs)``, as a graph if possible. The shapes of the inputs follow from the key.

    Results are valid until the next call. ``idle`` returns inputs for a key that affect no request's state; they are
    used for capture. A call may provide fewer rows than the key implies: idle inputs fill the rest.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[..., Sequence[Tensor]],
        idle: Callable[[Any], Sequence[Given]],
        device: torch.device,
        captures: bool = True,
    ) -> None:
        self.captures = captures and device.type == "cuda" and torch.cuda.is_available()
        self.graphs: dict[Hashable, _Graph | None] = {}
        """Graphs by key; None if the capture failed."""
        self._name = name
        self._compute = compute
        self._idle = idle
        self._device = device
        self._clock = time.monotonic
        self._retry_at_s: dict[Hashable, float] = {}
        self._pool: Any = None  # memory pool that the graphs share, because only one runs at a time

    @torch.inference_mode()
    def warm(self, keys: Sequence[Any]) -> None:
        """Capture these keys now; no effect on a device without graphs. Raises torch's error if memory runs out."""
        if self.captures:
            for key in keys:
                self._graph(key, ahead=True)

    def __call__(self, key: Any, *given: Given) -> Sequence[Tensor]:
        graph = self._graph(key) if self.captures else None
        return graph.replay(given) if graph is not None else self._compute(key, *self._filled(key, given))

    def _filled(self, key: Any, given: Sequence[Given]) -> list[Tensor]:
        """Return all rows of the inputs on the device, padded with idle rows."""
        found: list[Tensor] = []
        for one, idle in zip(given, self._idle(key), strict=True):
            there = on_device(one, self._device)
            rest = on_device(idle[len(one) :], self._device)
            found.append(torch.cat((there, rest)) if len(rest) else there)
        return found

    def _graph(self, key: Hashable, ahead: bool = False) -> _Graph | None:
        """Return the key's graph, captured on its first use; None if there is no graph.

        A capture that runs out of memory raises if it is made ``ahead``; otherwise it is retried later.
        """
        if key in self.graphs or (not ahead and self._clock() < self._retry_at_s.get(key, 0.0)):
            return self.graphs.get(key)
        try:
            self.graphs[key] = self._capture(key)
        except RuntimeError as error:
            short = next((one for one in (error, error.__context__) if out_of_memory(one)), None)
            if short is not None and ahead:
                raise short from None
            if short is None:
                self.graphs[key] = None
            self._retry_at_s[key] = self._clock() + RETRY_S
            log.warning(
                "%s: cannot capture a CUDA graph for %s: %s", self._name, key, str(short or error).splitlines()[0]
            )
        return self.graphs.get(key)

    def _capture(self, key: Any) -> _Graph:
        """Capture a key. The function runs once before, because libraries load and choose their kernels in the first
        call.
        """
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        idle = [on_device(one, self._device) for one in self._idle(key)]
        inputs = [one.clone() for one in idle]
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._compute(key, *inputs)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            found = self._compute(key, *inputs)
        pinned = [torch.empty_like(one, device="cpu", pin_memory=True) for one in inputs]
        return _Graph(graph, inputs, idle, pinned, found, torch.cuda.Event())


def on_device(one: Given, device: torch.device) -> Tensor:
    return one if isinstance(one, Tensor) else to_device(one, device)


@dataclass(frozen=True, slots=True)
class _Graph:
    """A captured computation with its input and output tensors."""

    graph: Any
    inputs: Sequence[Tensor]
    idle: Sequence[Tensor]
    """Values of the inputs in idle rows."""
    pinned: Sequence[Tensor]
    found: Sequence[Tensor]
    """Outputs."""
    brought: Any
    """Event: the copies from pinned memory are complete."""

    def replay(self, given: Sequence[Given]) -> Sequence[Tensor]:
        self.brought.synchronize()
        for one, there, idle, pinned in zip(given, self.inputs, self.idle, self.pinned, strict=True):
            count = len(one)
            if isinstance(one, np.ndarray):
                pinned.numpy()[:count] = one
                one = pinned[:count]
            there[:count].copy_(one, non_blocking=True)
            if count < len(there):
                there[count:].copy_(idle[count:])
        self.brought.record()
        self.graph.replay()
        return self.found
