"""The client as the bench uses it: a turn that never came is a figure too, not an error."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from app.bench.target import BenchError, Target
from app.client import ClientError, Response, connect
from app.client.client import Client as Connection
from app.client.events import AudioDelta, Error, Event, Other, TranscriptionCompleted
from app.client.reader import Events
from app.client.websocket import SILENCE_S
from engine.core import Pcm

Turn = Response

END_MS = 500
"""The protocol's default for the silence that ends a turn: for figures that are told without it."""

TURN_S = 30.0
"""An answer that is not complete by then is a failure."""


class Client:
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
        """Cut off, within the block, an answer once it can be heard: what follows would only be waited for."""
        cut = asyncio.create_task(self._cut(self._connection.events()), name="cut")
        try:
            yield
        finally:
            cut.cancel()
            await asyncio.wait([cut])

    @asynccontextmanager
    async def tracing(self, count: int) -> AsyncGenerator[deque[str]]:
        """The last ``count`` things that the server said within the block; the pieces of an answer count as one."""
        said = deque[str](maxlen=count)
        trace = asyncio.create_task(_trace(self._connection.events(), said), name="trace")
        try:
            yield said
        finally:
            trace.cancel()
            await asyncio.wait([trace])

    async def _cut(self, events: Events) -> None:
        async for event in events:
            if isinstance(event, AudioDelta) and self._connection.audible:
                await self._connection.interrupt()
                return

    def speech_ended(self) -> None:
        """The last voiced sample was sent: the next answer counts from here."""
        self._connection.speech_ended()

    async def answer(self, limit_s: float | None = None) -> Turn:
        """The next complete answer to speech; one that never came after ``limit_s``, or TURN_S."""
        return await _turn(self._connection.answer(), limit_s)

    async def microphone(self, pcm: Pcm) -> None:
        """Send int16 [samples] at SPEAKER_RATE_HZ as the microphone of a browser would: 20 ms every 20 ms."""
        await self._connection.speak(pcm)


async def _turn(answering: Coroutine[Any, Any, Response], limit_s: float | None = None) -> Turn:
    limit_s = TURN_S if limit_s is None else limit_s
    try:
        async with asyncio.timeout(limit_s):
            return await answering
    except TimeoutError:
        return Turn(0.0, failure=BenchError(f"no complete answer within {limit_s:g} s"))
    except ClientError as error:
        return Turn(0.0, failure=error)


def outcome(turn: Turn) -> str:
    """``completed``, or how else the answer ended, with the reason in the server's words where it gave one."""
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


async def _trace(events: Events, said: deque[str]) -> None:
    async for event in events:
        problem = _problem(event)
        if not said or said[-1] != problem:
            said.append(problem)


def _problem(event: Event) -> str:
    match event:
        case Other():
            return event.type
        case Error():
            return f"error: {event.message}"
        case TranscriptionCompleted():
            return f"transcribed: {event.transcript}"
        case _:
            return type(event).__name__


@asynccontextmanager
async def open_client(
    target: Target, end_ms: int | None = None, silence_s: float = SILENCE_S
) -> AsyncGenerator[Client]:
    """A session while the block lasts; turns end as our clients ask, or after a silence of ``end_ms``.

    A server that answers no ping for ``silence_s`` has gone.

    Raises BenchError.
    """
    eagerness = "auto" if end_ms is None else None
    try:
        async with connect(
            target.url, model=target.model, key=target.key, eagerness=eagerness, silence_s=silence_s
        ) as connection:
            if end_ms is not None:
                detection = {"type": "server_vad", "silence_duration_ms": end_ms}
                await connection.configure(audio={"input": {"turn_detection": detection}})
            yield Client(connection)
    except ClientError as error:
        raise BenchError(f"no session at {target.url}: {error}") from None
