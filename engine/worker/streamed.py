"""Stages whose answers come from a remote server, or from a library with its own scheduler.

An asynchronous generator produces the chunks as they arrive, and ``step`` passes them on. Ending an answer closes its
generator.
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
    """Raised when the computing part of a stage is gone for good. The worker ends and is restarted."""


class Streamed:
    """Base class of such stages.

    A subclass sets ``info`` and implements ``answer``, which may raise one EngineError. It overrides ``adapt`` if it
    needs more than the request, and ``describe`` if its info depends on its configuration.
    """

    info: StageInfo = StageInfo()
    patient: bool = False
    """Whether the stage limits its own waiting times (``Patience``) once its input is complete.

    For other stages, the engine's ``stall_s`` applies.
    """

    server: Watch | None = None
    """The health check of the remote server; None for a stage without one."""

    @property
    def unavailable(self) -> str:
        """A sentence that says why requests that need the stage fail now; empty while it is available."""
        return "" if self.server is None else self.server.unavailable

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        """Return the class's ``info``, with the configuration's number of slots."""
        return msgspec.structs.replace(cls.info, slots=config.slots)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)

    def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        """Yield the chunks of the answer to a request. ``inputs`` are the upstream chunks."""
        raise NotImplementedError

    async def watch(self) -> None:
        """Run for as long as the worker, in parallel with the answers, to keep ``unavailable`` up to date.

        It only checks that the server is up. Raising Broken ends the worker.
        """
        if self.server is not None:
            await self.server.run()

    async def prepare(self, request: Request) -> None:
        """Warm up the known part of a ``live`` request's prompt, for stages whose info ``prepares``.

        It may be cancelled at any time.
        """

    def open(self, req: StageRequest) -> None:
        """Do nothing: the generator starts the request."""

    async def aclose(self) -> None:
        """Release the stage's resources. All answers have ended by then."""

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return self.answer(req.request, inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """Return the chunks that have arrived since the last step."""
        return [self._come(req) for req in reqs]

    def _come(self, req: StageRequest) -> list[Chunk]:
        come = list(req.pending)
        req.pending.clear()
        req.done = req.ended
        return come


def asks(stage: object, req: StageRequest) -> bool:
    """Whether the stage limits the waiting time of this request itself, so that silence does not count as a stall."""
    return isinstance(stage, Streamed) and stage.patient and req.inputs.ended and not (req.ended or req.pending)
