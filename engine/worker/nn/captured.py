"""Computations of few shapes as CUDA graphs: each is captured once, and replayed from then on in one launch.

Where there are no graphs (a CPU, or a capture that failed) they are computed as such. Knows no model.
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

from engine.worker.device_faults import out_of_memory
from engine.worker.nn.device import to_device

log = logging.getLogger(__name__)

Given = Tensor | NDArray[Any]
AGAIN_S = 10.0
"""Seconds behind which a graph is tried again for which there was too little memory: a try costs others a step."""


def capture(compute: Callable[[], Any], pool: Any, device: torch.device) -> tuple[Any, Any]:
    """A graph of a computation, and what it computes into. It is computed once before: libraries load and choose then
    what they are going to run."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        compute()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        found = compute()
    return graph, found


class Graphs(dict[Hashable, Any]):
    """Graphs by their keys, each captured when it is first wanted. None: it cannot be captured."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._name = name
        self._clock = clock
        self._again_s: dict[Hashable, float] = {}

    def wanted(self, key: Hashable, capture: Callable[[], Any], what: str, ahead: bool) -> Any:
        """The graph of a key, ``what`` it is of, or None. A device that has too little memory for it may have some
        later, so that it is tried again; where graphs are captured ``ahead``, its error is raised."""
        if key in self or (not ahead and self._clock() < self._again_s.get(key, 0.0)):
            return self.get(key)
        try:
            self[key] = capture()
        except RuntimeError as error:
            short = next((one for one in (error, error.__context__) if out_of_memory(one)), None)
            if short is not None and ahead:
                raise short from None
            if short is None:
                self[key] = None
            self._again_s[key] = self._clock() + AGAIN_S
            log.warning("%s: %s not captured: %s", self._name, what, str(short or error).splitlines()[0])
        return self.get(key)


class Captured:
    """``compute`` of a key and of inputs whose shapes follow from it. What it computes stands until the next call.

    ``idle`` are inputs of a key that touch nobody's state: a capture computes them. Of those, a call gives the first
    rows; the rows behind them stay idle.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[..., Sequence[Tensor]],
        idle: Callable[[Any], Sequence[Given]],
        device: torch.device,
        captures: bool = True,
    ) -> None:
        self._compute = compute
        self._idle = idle
        self._device = device
        self._captures = captures and device.type == "cuda" and torch.cuda.is_available()
        self._graphs = Graphs(name)
        self._pool: Any = None  # graphs share their memory: one runs at a time

    @torch.inference_mode()
    def warm(self, keys: Sequence[Any]) -> None:
        """Capture ahead; where there are no graphs, nothing is computed. Raises what a device out of memory raises."""
        if self._captures:
            for key in keys:
                self._graph(key, ahead=True)

    def __call__(self, key: Any, *given: Given) -> Sequence[Tensor]:
        graph = self._graph(key) if self._captures else None
        return graph.replay(given) if graph is not None else self._compute(key, *self._filled(key, given))

    def _filled(self, key: Any, given: Sequence[Given]) -> list[Tensor]:
        """All rows of the inputs, on the device."""
        found: list[Tensor] = []
        for one, idle in zip(given, self._idle(key), strict=True):
            there = on_device(one, self._device)
            rest = on_device(idle[len(one) :], self._device)
            found.append(torch.cat((there, rest)) if len(rest) else there)
        return found

    def _graph(self, key: Any, ahead: bool = False) -> _Graph | None:
        """None where it cannot be captured."""
        return self._graphs.wanted(key, lambda: self._captured(key), f"{key} is", ahead)

    def _captured(self, key: Any) -> _Graph:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        idle = [on_device(one, self._device) for one in self._idle(key)]
        inputs = [one.clone() for one in idle]
        graph, found = capture(lambda: self._compute(key, *inputs), self._pool, self._device)
        pinned = [torch.empty_like(one, device="cpu", pin_memory=True) for one in inputs]
        return _Graph(graph, inputs, idle, pinned, found, torch.cuda.Event())


def on_device(one: Given, device: torch.device) -> Tensor:
    return one if isinstance(one, Tensor) else to_device(one, device)


@dataclass(frozen=True, slots=True)
class _Graph:
    """A captured computation, its inputs (also as they are where nobody gives them), and what it computes."""

    graph: Any
    inputs: Sequence[Tensor]
    idle: Sequence[Tensor]
    pinned: Sequence[Tensor]
    found: Sequence[Tensor]
    brought: Any
    """When numbers have left the pinned memory."""

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
