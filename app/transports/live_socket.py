"""``WS /v1/live/sessions``: a WebSocket with the Live protocol. The access check has already happened.

The first event, ``session.start``, contains all settings of the session. Afterwards it is a connection like any other
(``connection``), on which the server plays: audio is sent in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from app.access.auth import caller_of
from app.limits.principal import Principal
from app.live import LiveDialect, OutputTimeline, started
from app.live.from_wire import Misread, Start, parse
from app.live.sound import PROFILE, LiveSound
from app.live.to_wire import error_text
from app.realtime.protocol import Received
from app.realtime.protocol.client_events import CreateItem, InputSamples
from app.realtime.session_context import SessionContext
from app.refusal import Closed, Refusal, ServerFault
from app.service import Service
from app.telemetry import log
from app.transports.connection import Connection
from app.transports.disconnect import NOT_ALLOWED, Disconnect, first
from app.transports.opening import Opening
from app.transports.recorded_session import asks_for_recording
from app.transports.resumable_session import ResumableSessions
from app.transports.websocket import SocketTransport, accept, deny, end_with_server
from engine import MIC_RATE_HZ
from engine.aio.task_group import CycleFreeTaskGroup
from engine.core import Pcm

HUSH_S = 0.1
HUSH: Pcm = np.zeros(round(HUSH_S * MIC_RATE_HZ), np.int16)
"""Silence sent to the session while a muted client sends nothing, in pieces of this length."""

START_S = 120.0
"""Seconds until ``session.start``: some clients connect before their user arrives. The session slot is already
taken.
"""


async def live(socket: WebSocket, service: Service, sessions: ResumableSessions) -> None:
    """Serve one WebSocket from handshake to close."""
    transport = LiveTransport(socket, service)
    try:
        record = asks_for_recording(socket, service)
        with service.admission.admit(caller_of(socket.scope)) as context:
            await accept(socket)
            try:
                opening = _Opening(service, sessions, context, transport, caller_of(socket.scope), record)
                connection = await opening.in_time()
            except Disconnect as disconnect:
                await transport.close(disconnect)
            else:
                await connection.run("live")
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))
    except WebSocketDisconnect:
        pass


class LiveTransport(SocketTransport):
    """A WebSocket on which the server plays once the session has started."""

    def begin(self, dialect: LiveDialect) -> None:
        """Use the dialect of the client's new session, and send the session's audio in the dialect's format."""
        self._dialect = dialect
        self._sound = LiveSound(dialect.timeline, dialect.config.format, self.channel.outbox.put)
        self.channel.dialect = dialect
        self.channel.sound = self._sound

    async def messages(self) -> AsyncGenerator[str | bytes | Received]:
        """Yield the session's initial items, and then the client's messages."""
        for item in self._dialect.config.history:
            yield Received(CreateItem(item))
        async with (
            aclosing(self.frames()) as messages,
            aclosing(hushed(messages, lambda: self._dialect.muted)) as received,
        ):
            async for message in received:
                yield message

    async def run(self) -> None:
        await self._sound.run()


async def hushed(
    messages: AsyncGenerator[str | bytes], muted: Callable[[], bool]
) -> AsyncGenerator[str | bytes | Received]:
    """Yield the client's messages, and silence while it is muted and sends nothing, so that an open turn ends."""
    coming: asyncio.Task[str | bytes | None] | None = None
    try:
        message = await _next(messages)
        while message is not None:
            yield message
            if not muted():  # only a message can change this
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
    """Return the next message; None after the last one."""
    return await anext(messages, None)


@dataclass(frozen=True, slots=True)
class _Opening:
    """A WebSocket whose client has not started its session yet."""

    service: Service
    sessions: ResumableSessions
    context: SessionContext
    transport: LiveTransport
    caller: Principal
    record: bool

    async def in_time(self) -> Connection:
        """Return the connection of the session that the client starts. Raises Disconnect after START_S."""
        try:
            async with asyncio.timeout(START_S), CycleFreeTaskGroup() as tasks:
                watch = tasks.create_task(end_with_server(self.service.hosts.draining), name="watch")
                connection = await self._started()
                watch.cancel()
        except* Disconnect as disconnects:
            raise first(disconnects) from None
        except* TimeoutError:
            raise Disconnect(NOT_ALLOWED, "the session was not started", "goodbye") from None
        return connection

    async def _started(self) -> Connection:
        """Read until a valid ``session.start``, refusing everything else. Raises Disconnect."""
        async with aclosing(self.transport.frames()) as messages:
            async for message in messages:
                event_id: str | None = None
                try:
                    event_id, session = await self._start(message)
                    return self._connection(event_id, session)
                except Misread as misread:
                    await self._refuse(misread.refusal, misread.event_id)
                except Refusal as refusal:
                    await self._refuse(refusal, event_id)
                except Closed as closed:
                    await self._refuse(ServerFault(closed.code, str(closed), "session.model"), event_id)
        raise Disconnect

    async def _start(self, message: str | bytes) -> tuple[str | None, dict[str, Any]]:
        """Decode a ``session.start``. Raises Misread."""
        if not isinstance(message, str):
            raise Misread(Refusal("invalid_event", "Send events as JSON in text messages."), None)
        loop_time = self.service.loop_time(self.caller)
        event_id, said = await loop_time.read(partial(parse, message), len(message))
        if not isinstance(said, Start):
            raise Misread(Refusal("session_not_started", "The first event must be session.start.", "type"), event_id)
        return event_id, said.session

    def _connection(self, event_id: str | None, session: dict[str, Any]) -> Connection:
        """Create the connection. Raises Refusal, and Closed if the model cannot be used now."""
        config = started(session)
        context = self.service.with_model(self.context, config.model)
        self.transport.begin(LiveDialect(config, OutputTimeline(context.now), event_id))
        model = config.model[:200]
        opening = Opening(self.caller, model, config.patch(), PROFILE, record=self.record, live=session)
        return Connection(self.service, self.sessions, context, self.transport.channel, opening)

    async def _refuse(self, refusal: Refusal, event_id: str | None) -> None:
        self.context.metrics.errors.labels(refusal.code).inc()
        log("live.refused", client=self.caller.address, code=refusal.code, param=refusal.param)
        await self.transport.send(error_text(refusal, event_id))
