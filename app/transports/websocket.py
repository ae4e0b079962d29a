"""``WS /v1/realtime``: text frames to events and back. The access check has already happened.

A WebSocket is accepted for a new session, for a session that its client resumes, or to wait in the admission queue.
Afterwards it is a connection like on any transport (``connection``). The only events made here are those for refusing
and waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, suppress
from typing import Any
from weakref import proxy

from fastapi import WebSocket
from fastapi.responses import JSONResponse
from starlette.websockets import WebSocketDisconnect

from app.access.auth import caller_of, error_body
from app.limits.admission_queue import Waiter
from app.limits.rate_limiter import MESSAGE_BYTES
from app.realtime.protocol import Received, beta
from app.realtime.protocol.server_events import ErrorEvent, QueueUpdatedEvent
from app.realtime.protocol.to_wire import encode
from app.refusal import Closed, ServerFault
from app.service import Service
from app.telemetry import log
from app.transports.channel import Channel
from app.transports.connection import Connection
from app.transports.disconnect import GOING_AWAY, TRY_LATER, Disconnect, first
from app.transports.opening import Opening
from app.transports.recorded_session import asks_for_recording
from app.transports.resumable_session import NoWayBack, ResumableSessions
from engine.aio.task_group import CycleFreeTaskGroup

SUBPROTOCOL = "realtime"
EARLY_BYTES = 256 * 1024
"""Bytes kept for a client in the admission queue: its settings and first items. Empty messages count too."""
FAREWELL = 1000
"""The client closed the connection on purpose. A reloaded page uses 1001, and a lost connection shows as 1005 or
1006.
"""


async def realtime(socket: WebSocket, service: Service, sessions: ResumableSessions) -> None:
    """Serve one WebSocket from handshake to close: a new session, or one that its client resumes."""
    token, caller = socket.query_params.get("resume"), caller_of(socket.scope)
    try:
        if beta.asked_for(socket.headers.get("openai-beta", ""), socket.scope.get("subprotocols", ())):
            await _refuse_beta(socket)
            return
        opening = _opening(socket, asks_for_recording(socket, service))
        if token is not None:
            resumable, after = sessions.find(token, socket.query_params.get("after", ""), caller)
            await accept(socket)
            transport = SocketTransport(socket, service)
            await resumable.come_back(transport.channel, after)
        elif service.admission.full and socket.query_params.get("wait") == "true":
            await _wait(socket, service, sessions, opening)
        else:
            with service.admission.admit(caller, model=opening.asked_model) as context:
                await accept(socket)
                transport = SocketTransport(socket, service)
                await Connection(service, sessions, context, transport.channel, opening).run()
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))
    except NoWayBack as lost:
        await deny(socket, lost.status, lost.code, str(lost))
    except WebSocketDisconnect:
        pass


async def accept(socket: WebSocket) -> None:
    """Accept the upgrade with the offered subprotocol that we support, if any."""
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def deny(socket: WebSocket, status: int, code: str, message: str) -> None:
    """Refuse before the upgrade."""
    headers = {"retry-after": "5"} if status in (429, 503) else {}
    await socket.send_denial_response(JSONResponse(error_body(status, code, message), status, headers))


class SocketTransport:
    """A WebSocket, accepted or not yet. It works within its client's share of the event loop's time.

    Its channel holds only a weak reference to it.
    """

    def __init__(self, socket: WebSocket, service: Service) -> None:
        limits = service.settings.limits
        self._socket = socket
        self._timeout_s = limits.send_timeout_s
        self._early = deque[str | bytes]()  # messages that arrived before the session
        self.channel = Channel(proxy(self), limits, service.loop_time(caller_of(socket.scope)))

    def messages(self) -> AsyncGenerator[str | bytes | Received]:
        return self.frames()

    async def frames(self) -> AsyncGenerator[str | bytes]:
        """Yield the client's messages until it closes the connection. Raises Disconnect if the connection is lost."""
        while self._early:
            yield self._early.popleft()
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            yield text if text is not None else message.get("bytes") or b""
        if message.get("code") != FAREWELL:
            raise Disconnect

    async def send(self, text: str) -> None:
        try:
            await self._socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: already closed
            raise Disconnect(1006, "the client vanished") from None

    async def run(self) -> None:
        """Do nothing: a WebSocket has no other work."""

    async def collect(self) -> None:
        """Store messages of a waiting client up to a limit; further ones stay unread. Raises Disconnect."""
        early, room = deque[str | bytes](), EARLY_BYTES
        try:
            async with aclosing(self.frames()) as messages:
                async for message in messages:
                    early.append(message)
                    room -= len(message) + MESSAGE_BYTES
                    if room <= 0:
                        return
        finally:
            self._early = early
        raise Disconnect(1000, "the client left the admission queue")

    async def close(self, disconnect: Disconnect) -> None:
        if disconnect.how == "gone":
            return
        with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            if disconnect.how == "goodbye":
                async with asyncio.timeout(self._timeout_s):
                    await self._socket.close(disconnect.code, disconnect.reason)
                return
        abort = self._socket.scope.get("extensions", {}).get("parley.abort")
        if abort is not None:
            abort["call"]()


async def _refuse_beta(socket: WebSocket) -> None:
    """Refuse as OpenAI does: with an event, which clients display, and a special close code."""
    await accept(socket)
    log("session.beta_refused")
    await socket.send_text(encode(ErrorEvent(beta.refusal(), None))[0])
    await socket.close(beta.CLOSE, f"invalid_request_error.{beta.CODE}")


def _opening(socket: WebSocket, record: bool) -> Opening:
    """Return the initial settings: those of the client secret, and the session type in the URL."""
    caller = caller_of(socket.scope)
    kind: dict[str, Any] = {"type": "transcription"} if socket.query_params.get("intent") == "transcription" else {}
    settings = {**(caller.secret.session if caller.secret is not None else {}), **kind}
    return Opening(caller, socket.query_params.get("model", "")[:200], settings, record=record)


async def _wait(socket: WebSocket, service: Service, sessions: ResumableSessions, opening: Opening) -> None:
    """Wait for a session slot instead of being refused. Raises Closed if the queue is full too."""
    transport, caller = SocketTransport(socket, service), opening.caller
    channel, model = transport.channel, opening.asked_model
    with ExitStack() as session, ExitStack() as place:
        waiter = place.enter_context(
            service.admission.waiting(lambda place: channel.put(QueueUpdatedEvent(place)), caller, model)
        )
        await accept(socket)
        try:
            await _in_line(transport, service, waiter)
            context = session.enter_context(service.admission.admit(caller, waiter, model))
            place.close()
            await Connection(service, sessions, context, channel, opening).run()
        except Closed as closed:
            channel.put(ErrorEvent(ServerFault(closed.code, str(closed)), None))
            await channel.say_goodbye(Disconnect(TRY_LATER, "the server is full", "goodbye"))
        except Disconnect as disconnect:
            await channel.say_goodbye(disconnect)


async def _in_line(transport: SocketTransport, service: Service, waiter: Waiter) -> None:
    """Wait for the client's turn. Raises Disconnect, or Closed if it takes too long."""
    wait_s = service.settings.limits.wait_s
    try:
        async with asyncio.timeout(wait_s), CycleFreeTaskGroup() as tasks:
            others = [
                tasks.create_task(transport.channel.write(), name="write"),
                tasks.create_task(transport.collect(), name="collect"),
                tasks.create_task(end_with_server(service.hosts.draining), name="watch"),
            ]
            await waiter.called.wait()
            for task in others:
                task.cancel()
    except* Disconnect as disconnects:
        raise first(disconnects) from None
    except* TimeoutError:
        raise Closed("server_full", f"No session became free within {wait_s:g} s.") from None


async def end_with_server(draining: asyncio.Event) -> None:
    """Raise Disconnect once the server drains."""
    await draining.wait()
    raise Disconnect(GOING_AWAY, "the server is shutting down", "goodbye")
