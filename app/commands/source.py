"""The source of the commands' answers: a local engine, or a running server.

Errors that can be found early are found before an engine starts. Knows nothing about the contents of answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, Self

from app.commands import terminal
from app.commands.server import Address, RemoteServer
from engine import Engine, EngineSpec, Ledger, ModelInfo, Output, Request, RequestError, describe, nearest
from engine.deployment.config import file_of

Target = EngineSpec | Address
"""The engine or the server that a command uses."""


class Answered(Protocol):
    """The chunks of an answer as they arrive. The iterator raises one EngineError if the answer fails."""

    @property
    def ledger(self) -> Ledger | None: ...

    @property
    def marks_ms(self) -> dict[str, float]: ...

    def played(self) -> None:
        """Report that the listener's first sample plays now."""
        ...

    def __aiter__(self) -> AsyncIterator[Output]: ...


class Answerer(Protocol):
    """Answers requests. Leaving the block of ``open`` aborts the answer."""

    @property
    def model(self) -> ModelInfo: ...

    def open(self, request: Request) -> AbstractAsyncContextManager[Answered]: ...


@asynccontextmanager
async def opened(target: Target, voice: str | None = None) -> AsyncGenerator[Answerer]:
    """Open the source while the block lasts, after checking the voice. Raises EngineError."""
    if isinstance(target, Address):
        async with _Connected(target) as server:
            check_voice(server.model, voice)
            yield server
    else:
        if voice is not None:
            check_voice(await asyncio.to_thread(describe, target), voice)
        async with _Started(target) as engine:
            yield engine


def check_voice(model: ModelInfo, voice: str | None) -> None:
    """Refuse a voice that the model does not have. Raises RequestError."""
    if voice is not None and voice not in model.voice_ids:
        if file_of(voice) is not None:
            raise RequestError(f"{voice} is a stage: use `parley serve --voice {voice}`, or a configuration with `-c`")
        raise RequestError(f"{model.name} has no voice {voice!r} ({nearest(voice, model.voice_ids)})")


class _Started(Engine):
    """An engine that shows a spinner while it starts."""

    async def __aenter__(self) -> Self:
        with terminal.waiting(f"starting {self.spec.title} …"):
            return await super().__aenter__()


class _Connected(RemoteServer):
    """A running server; shows a spinner until the server responds and has loaded its models."""

    async def __aenter__(self) -> Self:
        with terminal.waiting("waiting for the server …"):
            return await super().__aenter__()
