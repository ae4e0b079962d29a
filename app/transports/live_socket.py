"""``WS /v1/live/sessions``: a socket whose client speaks the Live protocol; who may connect was decided before.

Its first event is ``session.start``, which has all settings of the session that follows. From then on it is a
connection as any other (``connection``), on which the server plays: sound goes out in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import numpy as np
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from app.auth import caller_of
from app.live import LiveDialect, Timeline, started
from app.live.from_wire import Misread, Start, parse
from app.live.sound import PROFILE, LiveSound
from app.live.to_wire import error_text
from app.realtime.protocol import Received
from app.realtime.protocol.client_events import CreateItem, InputSamples
from app.realtime.session_context import SessionContext
from app.refusal import Closed, Refusal
from app.service import Service
from app.slices import LoopTime
from app.telemetry import log
from app.transports.channel import Channel
from app.transports.connection import Connection, Opening
from app.transports.disconnect import NOT_ALLOWED, Disconnect, first
from app.transports.resumable_session import ResumableSessions
from app.transports.websocket import SocketTransport, accept, deny, end_with_server
from engine import MIC_RATE_HZ
from engine.core import Pcm
from engine.freed import Tasks

HUSH_S = 0.1
HUSH: Pcm = np.zeros(round(HUSH_S * MIC_RATE_HZ), np.int16)
"""The silence of a muted client that sends nothing, so many seconds of it at a time."""

START_S = 120.0
"""Seconds until ``session.start``: some clients connect while their user is yet to come. Its place is taken already."""


async def live(socket: WebSocket, service: Service, sessions: ResumableSessions) -> None:
    """One socket, from the handshake to the close."""
    try:
        with service.admission.admit(caller_of(socket.scope)) as context:
            await accept(socket)
            door = SocketTransport(socket, service)
            try:
                connection = await _opened(_Opening(socket, service, sessions, context, door), service)
            except Disconnect as disconnect:
                await door.close(disconnect)
            else:
                await connection.run("live")
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))
    except WebSocketDisconnect:
        pass


class LiveTransport:
    """The socket of a session that was started; ``door`` is what it was started through."""

    def __init__(self, door: SocketTransport, service: Service, loop_time: LoopTime, dialect: LiveDialect) -> None:
        self._door = door
        self._dialect = dialect
        self._history = dialect.config.history
        self._sound = LiveSound(dialect.timeline, dialect.config.format, self._put)
        self.channel = Channel(self, service.settings.limits, loop_time, sound=self._sound, dialect=dialect)

    async def messages(self) -> AsyncGenerator[str | bytes | Received]:
        """Yield what was said before the session, and then what the client says."""
        for item in self._history:
            yield Received(CreateItem(item))
        async with (
            aclosing(self._door.messages()) as messages,
            aclosing(hushed(messages, lambda: self._dialect.muted)) as received,
        ):
            async for message in received:
                yield message

    async def send(self, text: str) -> None:
        await self._door.send(text)

    async def run(self) -> None:
        await self._sound.run()

    async def close(self, disconnect: Disconnect) -> None:
        await self._door.close(disconnect)

    def _put(self, text: str, seconds: float) -> None:
        self.channel.outbox.put(text, seconds)


async def hushed(
    messages: AsyncGenerator[str | bytes], muted: Callable[[], bool]
) -> AsyncGenerator[str | bytes | Received]:
    """What a client says, and silence while it is muted and says nothing: a turn that it was in comes to its end."""
    coming: asyncio.Task[str | bytes | None] | None = None
    try:
        message = await _next(messages)
        while message is not None:
            yield message
            if not muted():  # which a message alone can change
                message = await _next(messages)
                continue
            coming = asyncio.create_task(_next(messages), name="live-next")
            while not (await asyncio.wait((coming,), timeout=HUSH_S))[0]:
                yield Received(InputSamples(HUSH))
            message, coming = coming.result(), None
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, Disconnect):
                await coming


async def _next(messages: AsyncGenerator[str | bytes]) -> str | bytes | None:
    """The next message; None behind the last."""
    return await anext(messages, None)


class _Opening:
    """A socket whose client has not started its session yet."""

    def __init__(
        self,
        socket: WebSocket,
        service: Service,
        sessions: ResumableSessions,
        context: SessionContext,
        door: SocketTransport,
    ) -> None:
        self._socket = socket
        self._service = service
        self._sessions = sessions
        self._context = context
        self._door = door
        self._loop_time = service.loop_time(caller_of(socket.scope))

    async def run(self) -> Connection:
        """Read until a ``session.start`` is obeyed; whatever else comes is refused. Raises Disconnect."""
        async with aclosing(self._door.messages()) as messages:
            async for message in messages:
                event_id: str | None = None
                try:
                    event_id, session = await self._start(message)
                    return self._connection(event_id, session)
                except Misread as misread:
                    await self._refuse(misread.refusal, misread.event_id)
                except Refusal as refusal:
                    await self._refuse(refusal, event_id)
        raise Disconnect

    async def _start(self, message: Any) -> tuple[str | None, dict[str, Any]]:
        """Raises Misread."""
        if not isinstance(message, str):
            raise Misread(Refusal("invalid_event", "Events are JSON in text messages."), None)
        event_id, said = await self._loop_time.read(partial(parse, message), len(message))
        if not isinstance(said, Start):
            raise Misread(Refusal("session_not_started", "The first event is session.start.", "type"), event_id)
        return event_id, said.session

    def _connection(self, event_id: str | None, session: dict[str, Any]) -> Connection:
        """Raises Refusal."""
        config = started(session)
        dialect = LiveDialect(config, Timeline(self._context.now), event_id)
        transport = LiveTransport(self._door, self._service, self._loop_time, dialect)
        opening = Opening(caller_of(self._socket.scope), config.model[:200], config.patch(), PROFILE)
        return Connection(self._service, self._sessions, self._context, transport.channel, opening)

    async def _refuse(self, refusal: Refusal, event_id: str | None) -> None:
        self._context.metrics.errors.labels(refusal.code).inc()
        client = caller_of(self._socket.scope).address
        log("live.refused", client=client, code=refusal.code, param=refusal.param)
        await self._door.send(error_text(refusal, event_id))


async def _opened(opening: _Opening, service: Service) -> Connection:
    """The connection of a session that is started in time. Raises Disconnect."""
    try:
        async with asyncio.timeout(START_S), Tasks() as tasks:
            watch = tasks.create_task(end_with_server(service.engine_host.draining), name="watch")
            connection = await opening.run()
            watch.cancel()
    except* Disconnect as disconnects:
        raise first(disconnects) from None
    except* TimeoutError:
        raise Disconnect(NOT_ALLOWED, "the session was not started", "goodbye") from None
    return connection
