"""A stage whose answers make themselves: it asks a server, or a library that schedules its requests itself.

Its generator makes the chunks, as they come; its step hands them on. Leaving an answer closes the generator, and with
it whatever it holds. Knows no server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec

from engine.chunk import Chunk
from engine.core import Request, StageInfo
from engine.errors import EngineError
from engine.worker.remote.watch import Watch
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


class Broken(Exception):
    """The error of a stage whose computing part is gone for good: its worker is of no use, ends, and is started
    again."""


class Streamed:
    """Base of such stages: they say in ``info`` what they take and give, and write ``answer``, which may raise one
    EngineError (or ``adapt``, where they need more than the request). Where a stage's info depends on its place, it is
    ``describe`` that tells it."""

    info: StageInfo = StageInfo()
    patient: bool = False
    """Whether the stage bounds by itself how long it waits for whatever it asks (``Patience``), once it has all that
    there is to ask. Of the others the engine ends an answer that stands still."""

    server: Watch | None = None
    """The watch of a stage that asks a server: whether that is there."""

    @property
    def unavailable(self) -> str:
        """Explain why requests that need the stage fail for now, as a sentence; empty while it can be had."""
        return "" if self.server is None else self.server.unavailable

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        """Describe the stage as the class does, with as many slots as the worker has room for."""
        return msgspec.structs.replace(cls.info, slots=config.slots)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)

    def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        """The chunks of the answer to a request. ``inputs`` are the upstream's."""
        raise NotImplementedError

    async def watch(self) -> None:
        """Run beside the answers for as long as the worker does: keep ``unavailable`` true. Nothing is asked of a
        server but whether it is there. Broken, which it may raise, ends the worker."""
        if self.server is not None:
            await self.server.run()

    async def prepare(self, request: Request) -> None:
        """Warm up what is known of a prompt: of a ``live`` request, all but its user's words. For stages whose info
        ``prepares``. It may be cancelled at any time."""

    def open(self, req: StageRequest) -> None:
        """Nothing is prepared: the generator begins by itself."""

    async def aclose(self) -> None:
        """Let go of what the stage holds beside its answers; all of these are over."""

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return self.answer(req.request, inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """All that has come since the last step."""
        return [self._come(req) for req in reqs]

    def _come(self, req: StageRequest) -> list[Chunk]:
        come = list(req.pending)
        req.pending.clear()
        req.done = req.ended
        return come


def asks(stage: object, req: StageRequest) -> bool:
    """Whether a server, or a library of its own, is asked all that there is to ask: how long it may take is bounded
    there (``Patience``), and is no standstill of the engine's."""
    return isinstance(stage, Streamed) and stage.patient and req.inputs.ended and not (req.ended or req.pending)
