"""The client of the bench: an answer that never arrives is a figure, not an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from app.bench.target import BenchError, Target
from app.client import ClientError, Response, connect
from app.client.client import Client as Connection
from app.client.events import AudioDelta
from app.client.reader import Events
from engine.core import Pcm

Turn = Response

END_MS = 500
"""The protocol's default for the silence that ends a turn; some figures are reported without it."""

TURN_S = 30.0
"""An answer that is incomplete after this many seconds is a failure."""


class BenchClient:
    """One session of the bench."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def typed(self, text: str) -> Turn:
        """Send a text message and wait until the answer is complete."""
        return await _turn(self._connection.ask(text))

    async def begun(self, text: str) -> Turn:
        """Send a text message, and interrupt the answer once it is audible."""
        async with self.cutting():
            return await self.typed(text)

    @asynccontextmanager
    async def cutting(self) -> AsyncGenerator[None]:
        """Interrupt an answer within the block once it is audible, so that nobody waits for the rest."""
        cut = asyncio.create_task(self._cut(self._connection.events()), name="cut")
        try:
            yield
        finally:
            cut.cancel()
            await asyncio.wait([cut])

    async def _cut(self, events: Events) -> None:
        async for event in events:
            if isinstance(event, AudioDelta) and self._connection.audible:
                await self._connection.interrupt()
                return

    def speech_ended(self) -> None:
        """Mark the end of speech: the latency of the next answer counts from now."""
        self._connection.speech_ended()

    async def answer(self) -> Turn:
        """Wait for the next complete answer to speech."""
        return await _turn(self._connection.answer())

    async def microphone(self, pcm: Pcm) -> None:
        """Send int16 [samples] at SPEAKER_RATE_HZ like a browser's microphone: 20 ms every 20 ms."""
        await self._connection.speak(pcm)


async def _turn(answering: Coroutine[Any, Any, Response]) -> Turn:
    try:
        async with asyncio.timeout(TURN_S):
            return await answering
    except TimeoutError:
        return Turn(0.0, failure=BenchError(f"no complete answer within {TURN_S:g} s"))
    except ClientError as error:
        return Turn(0.0, failure=error)


def outcome(turn: Turn) -> str:
    """Return ``completed``, or how else the answer ended, with the server's reason if there is one."""
    if turn.complete:
        return "completed"
    if turn.failure is not None:
        return f"{turn.status}: {turn.failure}"
    if turn.status == "completed":
        return "completed without audio"
    details = turn.response.get("status_details") or {}
    error = details.get("error") or {}
    why = ", ".join(filter(None, (details.get("reason"), error.get("code"), error.get("message"))))
    return f"{turn.status}: {why}" if why else turn.status


@asynccontextmanager
async def open_client(target: Target, end_ms: int | None = None) -> AsyncGenerator[BenchClient]:
    """Open a session while the block lasts. Turns end by semantic detection, or after ``end_ms`` of silence.

    Raises BenchError.
    """
    eagerness = "auto" if end_ms is None else None
    try:
        async with connect(target.url, model=target.model, key=target.key, eagerness=eagerness) as connection:
            if end_ms is not None:
                detection = {"type": "server_vad", "silence_duration_ms": end_ms}
                await connection.configure(audio={"input": {"turn_detection": detection}})
            yield BenchClient(connection)
    except ClientError as error:
        raise BenchError(f"no session at {target.url}: {error}") from None
