"""The interface between two stages of a family: chunks go in, payloads come out. The last payload ends the request."""

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
    """One request's transition from one stage to the next.

    ``add`` takes a chunk and returns the payloads that it completes. ``end`` is called once, after the last chunk, and
    returns the last payload. There always is one, possibly empty, so that the consumer ends. ``add`` and ``end`` raise
    StageFailed for unexpected chunks.
    """

    def add(self, chunk: Chunk) -> Iterable[P_co]: ...

    def end(self) -> P_co: ...


async def adapted(transition: Transition[P], inputs: AsyncIterator[Chunk]) -> AsyncGenerator[P]:
    """Yield the payloads of a request, in order, as a stage's ``adapt`` does."""
    async for chunk in inputs:
        for payload in transition.add(chunk):
            yield payload
    yield transition.end()


class FullPayload(Generic[S, P]):
    """A transition with a single payload: ``rule`` applied to all steps, which are of type ``struct``."""

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
    """Return the struct that a chunk contains. Raises StageFailed for any other chunk."""
    wanted = struct.__struct_config__.tag
    if not isinstance(chunk, Tensors) or chunk.name != wanted:
        raise StageFailed(f"the stage takes only {wanted}, but received {chunk.kind}")
    try:
        return chunk.read(struct)
    except msgspec.ValidationError as error:
        raise StageFailed(f"the stage received an invalid {wanted} message: {error}") from None
