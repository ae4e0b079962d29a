"""The seam between the step loop and a model: what a stage is, and the seat that a request takes at it.

A family (one module of ``engine/worker/models``) exports ``FAMILY``: how to describe the model and how to build each of
its stages. The step loop knows no model; a stage knows no loop, no socket and no other request's state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.core import Chunk, ModelInfo, Request, StageInfo
from engine.errors import EngineError


class Pace(Protocol):
    """How much to gather before the listener must be served: the chunk policy, fed by playout."""

    def size(self, count: int) -> int:
        """How many codec frames the ``count``-th chunk (from 0) of this answer should hold."""
        ...

    def hurry(self) -> bool:
        """Whether the listener would run dry if one more frame were waited for."""
        ...


@dataclass(slots=True, eq=False)
class Seat:
    """One request's place at a stage, from its lease to its end.

    ``rows`` are what the stage's bridge made of the upstream's chunks and the stage has not eaten; ``ended`` says that
    no more will come. The stage writes two fields in ``step``: ``hungry``, that it cannot step this seat again before
    a further row (or the end) arrives, and ``done``, that the seat has nothing left to emit. ``slot`` is a number in
    [0, info.slots) that no other open seat of the stage has: the index into preallocated state (KV, conv tails).
    ``group`` is every seat of its request at this stage by its role, itself among them: the main one's chunks are the
    answer, those of its companions are not passed on.
    """

    request: Request
    slot: int
    pace: Pace
    role: str = "main"
    group: Mapping[str, Seat] = field(default_factory=dict[str, "Seat"])
    state: Any = None
    rows: deque[Any] = field(default_factory=deque[Any])
    ended: bool = False
    hungry: bool = True
    done: bool = False

    @property
    def ready(self) -> bool:
        return not self.done and (bool(self.rows) or self.ended or not self.hungry)


class Stage(Protocol):
    """One stage of a model on one device.

    ``open`` prepares ``seat.state`` for a new request (any previous content of the slot is void) or raises
    RequestError. ``bridge`` is an async generator that turns upstream chunks into rows; the loop runs it as the
    consumer of the upstream stream, puts each row on ``seat.rows`` and waits while more than a few lie uneaten; it runs
    between steps, so it must not compute long. ``step`` advances every seat of the batch once: one decode step, one
    bounded piece of prefill, or one chunk of codec frames. It returns, for each seat in order, the chunks it emits, or
    an EngineError that ends that seat's request and no other.
    """

    info: StageInfo

    def open(self, seat: Seat) -> None: ...

    def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]: ...

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]: ...


def spoken(frames: Sequence[Chunk], first: int) -> dict[str, Any]:
    """The meta of the sound of codec frames that follow ``first`` earlier ones: how far the text is after each.

    Frames are numbered from the answer's first, so that a listener knows his place in the text to the frame.
    """
    return {**frames[-1].meta, "frame": first, "text_ends": [frame.meta.get("text_end", 0) for frame in frames]}


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a stage is to compute."""

    weights: Path | None = None
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    slots: int = 16
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: ``stages`` maps each stage's name, in the order that chunks pass them, to its maker."""

    info: Callable[[Place], ModelInfo]
    stages: Mapping[str, Callable[[Place], Stage]]
    rows_ahead: int = 8
    """How many uneaten rows a seat may hold before its bridge waits."""
