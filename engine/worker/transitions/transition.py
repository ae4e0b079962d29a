"""The seam between two stages of a family: chunks go in, payloads come out, and the last payload ends the request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from engine.chunk import Chunk, Tensors
from engine.errors import StageFailed
from engine.worker.transitions.accumulator import Accumulator

S = TypeVar("S", bound=msgspec.Struct)
P = TypeVar("P", bound=msgspec.Struct)
P_co = TypeVar("P_co", bound=msgspec.Struct, covariant=True)


class Transition(Protocol[P_co]):
    """One request's way from one stage to the next.

    ``add`` takes a chunk and returns the payloads that it completes. ``end`` is called once, when no more chunks come,
    and returns the last payload. There is always one, be it empty: so the consumer ends, and waits for nothing. Both
    raise StageFailed for what does not belong here.
    """

    def add(self, chunk: Chunk) -> Iterable[P_co]: ...

    def end(self) -> P_co: ...


async def adapted(transition: Transition[P], inputs: AsyncIterator[Chunk]) -> AsyncGenerator[P]:
    """A stage's ``adapt``: the payloads of a request, in order."""
    async for chunk in inputs:
        for payload in transition.add(chunk):
            yield payload
    yield transition.end()


class FullPayload(Generic[S, P]):
    """A transition that gives one payload: ``rule`` of all the steps, which are of ``struct``."""

    def __init__(self, struct: type[S], rule: Callable[[S], P]) -> None:
        self._struct = struct
        self._rule = rule
        self._steps = Accumulator(struct)

    def add(self, chunk: Chunk) -> Iterable[P]:
        self._steps.add(step_of(chunk, self._struct))
        return ()

    def end(self) -> P:
        return self._rule(self._steps.whole)


def step_of(chunk: Chunk, struct: type[S]) -> S:
    """The struct that a chunk carries. Raises StageFailed for any other chunk."""
    wanted = struct.__struct_config__.tag
    if not isinstance(chunk, Tensors) or chunk.name != wanted:
        raise StageFailed(f"this stage takes {wanted}, not {chunk.kind}")
    try:
        return chunk.read(struct)
    except msgspec.ValidationError as error:
        raise StageFailed(f"{wanted} cannot be read: {error}") from None
