"""The client as the bench uses it: an answer that never came is a figure, not an error."""

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
"""The protocol's default for the silence that ends a turn; some figures are given without it."""

TURN_S = 30.0
"""An answer that is not complete by then is a failure."""


class BenchClient:
    """One session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def typed(self, text: str) -> Turn:
        """Send a text message, ask for the answer, and wait until it is complete."""
        return await _turn(self._connection.ask(text))

    async def begun(self, text: str) -> Turn:
        """Send a text message, ask for the answer, and cut it off once it can be heard."""
        async with self.cutting():
            return await self.typed(text)

    @asynccontextmanager
    async def cutting(self) -> AsyncGenerator[None]:
        """Interrupt an answer within the block once it can be heard, so that nobody waits for the rest."""
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
        """The last voiced sample was sent: the next answer counts from here."""
        self._connection.speech_ended()

    async def answer(self) -> Turn:
        """Wait for the next complete answer to speech."""
        return await _turn(self._connection.answer())

    async def microphone(self, pcm: Pcm) -> None:
        """Send int16 [samples] at SPEAKER_RATE_HZ as the microphone of a browser would: 20 ms every 20 ms."""
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
    """Return ``completed``, or how else the answer ended, with the server's reason where it gave one."""
    if turn.complete:
        return "completed"
    if turn.failure is not None:
        return f"{turn.status}: {turn.failure}"
    if turn.status == "completed":
        return "completed without a sound"
    details = turn.response.get("status_details") or {}
    error = details.get("error") or {}
    why = ", ".join(filter(None, (details.get("reason"), error.get("code"), error.get("message"))))
    return f"{turn.status}: {why}" if why else turn.status


@asynccontextmanager
async def open_client(target: Target, end_ms: int | None = None) -> AsyncGenerator[BenchClient]:
    """Open a session while the block lasts; turns end as our clients ask, or after a silence of ``end_ms``.

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
