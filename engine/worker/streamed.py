"""A stage whose answers make themselves: it asks a server, or a library that schedules its requests itself.

Its generator makes the chunks, as they come; its step hands them on. Leaving an answer closes the generator, and with
it whatever it holds. Knows no server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec

from engine.chunk import Chunk
from engine.core import Request, StageInfo
from engine.errors import EngineError
from engine.worker.stage import Place, Seat


class Streamed(ABC):
    """Base of such stages: they say in ``info`` what they take and give, and write ``answer``, which may raise one
    EngineError. Where a stage's info depends on its place, it is ``describe`` that tells it."""

    info: StageInfo = StageInfo()
    unavailable: str = ""
    """Why requests that need the stage fail for now, as a sentence; empty while it can be had."""

    @classmethod
    def describe(cls, place: Place) -> StageInfo:
        """What the class says, with as many slots as the worker has room for."""
        return msgspec.structs.replace(cls.info, slots=place.slots)

    def __init__(self, place: Place) -> None:
        self.info = self.describe(place)

    @abstractmethod
    def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        """The chunks of the answer to a request. ``inputs`` are the upstream's."""

    async def watch(self) -> None:  # noqa: B027 - most have nothing to watch
        """Runs beside the answers for as long as the worker does: keeps ``unavailable`` true."""

    def open(self, seat: Seat) -> None:  # noqa: B027
        """Nothing is prepared: the generator begins by itself."""

    async def aclose(self) -> None:  # noqa: B027 - most have nothing to close
        """Let go of what the stage holds beside its answers; all of these are over."""

    def adapt(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return self.answer(seat.request, inputs)

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        """All that has come since the last step."""
        return [self._come(seat) for seat in seats]

    def _come(self, seat: Seat) -> list[Chunk]:
        come = list(seat.rows)
        seat.rows.clear()
        seat.done = seat.ended
        return come
