"""The seam between the step loop and a model: what a stage is, and the seat that a request takes at it.

A stage is made of a ``Place``, and says before that what it takes and gives (``describe``); ``uses.py`` finds it by its
name. The step loop knows no model; a stage knows no loop, no socket and no other request's state.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.chunk import Checkpoint, Chunk, Codes
from engine.core import (
    AudioPart,
    Message,
    Part,
    Request,
    StageInfo,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from engine.errors import ContextOverflow, EngineError, StageFailed
from engine.stream import windows

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


class Pace(Protocol):
    """How much to gather before the listener must be served: the chunk policy, fed by playout."""

    def size(self, count: int) -> int:
        """How many codec frames the ``count``-th chunk (from 0) of this answer should hold."""
        ...

    def hurry(self) -> bool:
        """Whether the listener would run dry if one more frame were waited for."""
        ...


class OneFrame:
    """The chunk policy of a first sound."""

    def size(self, count: int) -> int:
        return 1

    def hurry(self) -> bool:
        return False


@dataclass(slots=True, eq=False)
class Seat:
    """One request's place at a stage, from its lease to its end.

    ``rows`` are what the stage's adapter made of the upstream's chunks and the stage has not consumed; ``ended`` says
    that no more will come. The stage writes two fields in ``step``: ``needs_input``, that it cannot step this seat
    again before a further row (or the end) arrives, and ``done``, that the seat has nothing left to emit. ``slot`` is
    a number in [0, info.slots) that no other open seat of the stage has: the index into preallocated state (KV, conv
    tails).
    ``group`` is every seat of its request at this stage by its role, itself among them: the main one's chunks are the
    answer, those of its companions are not passed on. ``kept`` is what the stage checkpointed on a replica that was
    lost: the chunks of its info's ``checkpoints``, which are passed on again as they are, and its last Checkpoint.
    A stage may go on behind that state, as if it had given what it gave before; else it begins anew, is fed the same
    again, and what it had given is left out.
    """

    request: Request
    slot: int
    pace: Pace
    role: str = "main"
    group: Mapping[str, Seat] = field(default_factory=dict[str, "Seat"])
    state: Any = None
    rows: deque[Any] = field(default_factory=deque[Any])
    ended: bool = False
    needs_input: bool = True
    done: bool = False
    kept: Sequence[Chunk] = ()

    @property
    def ready(self) -> bool:
        return not self.done and (bool(self.rows) or self.ended or not self.needs_input)

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The last state that the stage checkpointed on a replica that was lost; None without."""
        return next((chunk.state for chunk in reversed(self.kept) if isinstance(chunk, Checkpoint)), None)


class Stage(Protocol):
    """One stage of a model on one device.

    ``open`` prepares ``seat.state`` for a new request (any previous content of the slot is void) or raises
    RequestError. ``adapt`` is an async generator that turns upstream chunks into rows; the loop runs it as the
    consumer of the upstream stream, puts each row on ``seat.rows`` and waits while more than a few lie unread; it runs
    between steps, so it must not compute long. ``step`` advances every seat of the batch once: one decode step, one
    bounded piece of prefill, or one chunk of codec frames. It returns, for each seat in order, the chunks it emits, or
    an EngineError that ends that seat's request and no other. What is done for one seat alone is ``guarded``, so that
    its error is its own; where a step raises all the same, every request of the batch begins again, alone. A stage
    that keeps what it computed for sessions does so in ``prefixes`` (a Prefixes), whose counts the worker tells. One
    with a ``warm_up`` has it called before anybody waits for it: what it does then costs nothing but time.
    """

    info: StageInfo

    def open(self, seat: Seat) -> None: ...

    def adapt(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]: ...

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]: ...


class StageType(Protocol):
    """What makes a stage: its class, most often.

    ``describe`` is what the stage will say of itself. It reads a checkpoint's configuration at most: no weights, no
    device. Both raise ConfigError or WeightsError.
    """

    def describe(self, place: Place, /) -> StageInfo: ...

    def __call__(self, place: Place, /) -> Stage: ...


def guarded(
    stage: Stage, seat: Seat, work: Callable[Concatenate[Seat, P], T], *args: P.args, **named: P.kwargs
) -> T | EngineError:
    """What ``work`` makes of a seat, or the error that ends the seat's request: what it raises reaches no other."""
    try:
        return work(seat, *args, **named)
    except EngineError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever one request makes a model raise ends that request
        return failed(stage.info.name, seat.request.id, error)


def failed(stage: str, request: str, error: Exception) -> StageFailed:
    """What a request is told of an error that is no fault of its own; the log is told all."""
    log.error("request %s: the stage %s failed", request, stage, exc_info=error)
    return StageFailed(f"The stage {stage} failed while it computed this answer; the server's log says why.")


def warm_up(stage: Stage, count: int, row: Any, steps: int = 1) -> None:
    """Step seats of no request, each with a row, before anybody waits for one.

    What a runtime asks of the system by then (memory above all) need not be asked for in somebody's first sound.
    """
    request = Request(id="", session="", messages=())
    seats = [Seat(request, slot, OneFrame()) for slot in range(count)]
    for seat in seats:
        stage.open(seat)
        seat.rows.append(row)
    for _ in range(steps):
        stage.step([seat for seat in seats if seat.ready])


def check_length(messages: Sequence[Message], most: int) -> None:
    """Refuse a conversation whose texts are so long that reading them would hold up everybody's next step.

    Raises ContextOverflow beyond ``most`` characters, before anything looks into them.
    """
    length = sum(_length(part) for message in messages for part in message.parts)
    if length > most:
        raise ContextOverflow(f"The conversation has {length} characters; this model can read {most}. Shorten it.")


def _length(part: Part) -> int:
    match part:
        case TextPart(text):
            return len(text)
        case AudioPart(_, transcript):
            return len(transcript or "")
        case ToolCallPart(name, arguments, _):
            return len(name) + len(arguments)
        case ToolResultPart(_, output):
            return len(output)
        case _:
            return 0


def frames_of(seconds: float, frame_s: float) -> int:
    """How many codec frames last so long: one at least."""
    return max(1, round(min(seconds, LONGEST_S) / frame_s))


LONGEST_S = 1e6
"""No answer is longer: twelve days."""

STATE_FRAMES = 25
"""Codec frames between two states that a stage leaves: what is made again where a replica was lost is no more."""


def state_due(before: int, frames: int) -> bool:
    """Whether a stage that has given ``frames``, and one step ago ``before``, is to leave its state now."""
    return before // STATE_FRAMES < frames // STATE_FRAMES


@dataclass(frozen=True, slots=True)
class Window:
    """A code2wav's row: codec frames to be decoded at once, int16 [frames, codebooks], and the marks of their sound."""

    codes: NDArray[np.int16]
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Books:
    """The code books of a codec: how many, how many vectors each has, and the samples that a frame becomes."""

    count: int
    size: int
    frame_samples: int

    async def windows(self, seat: Seat, inputs: AsyncIterator[Chunk], first: int = 0) -> AsyncGenerator[Any]:
        """A code2wav's rows: codec frames behind the ``first`` ones, as many at a time as the listener can wait for.

        Raises StageFailed for what is no frame: looked up, a code beyond its book would end the process on some
        devices.
        """
        async for frames in windows(inputs, seat.pace.size, seat.pace.hurry, first):
            yield Window(self._joined([frame.frames for frame in frames]), self.marks(frames, first))
            first += len(frames)

    def marks(self, frames: Sequence[Codes], first: int) -> tuple[tuple[int, int], ...]:
        """Where the voice is in the text after each of the codec frames that follow ``first`` earlier ones."""
        return tuple((n * self.frame_samples, frame.text_end) for n, frame in enumerate(frames, first + 1))

    def _joined(self, frames: Sequence[NDArray[Any]]) -> NDArray[Any]:
        shapes = {frame.shape for frame in frames}
        if shapes != {(1, self.count)}:
            raise StageFailed(f"codec frames are [1, {self.count}], not {', '.join(map(str, shapes))}")
        codes = np.concatenate(frames)
        if codes.min() < 0 or codes.max() >= self.size:
            raise StageFailed(f"a code is not from 0 to {self.size - 1}: {codes.min()} to {codes.max()}")
        return codes


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a stage is to compute."""

    weights: Path | None = None
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    slots: int = 16
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
