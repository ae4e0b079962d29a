"""``WS /v1/realtime``: text frames to commands, notices to text frames; who may connect was decided before.

Each session is one task group, in the hands of the connection that opened it: the session, a writer, and a watch that
ends it when the server drains or its hour is over. Whatever ends first ends the others; only where the client asked for
it does the session outlive a connection for a while (``resumable_session``). Knows the protocol only as ``decode``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import WebSocket
from fastapi.responses import JSONResponse
from starlette.websockets import WebSocketDisconnect

from app.auth import address_of, caller_of, error_body
from app.pace import MESSAGE_BYTES
from app.realtime.ports import SOCKET
from app.realtime.protocol import beta
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.from_wire import decode
from app.realtime.protocol.server_events import Error, QueueUpdated
from app.realtime.protocol.to_wire import encode
from app.realtime.session import Session
from app.realtime.session_context import SessionContext
from app.refusal import Broken, Refusal
from app.service import Closed, Service
from app.settings import Limits
from app.slices import Counted, LoopTime, Slices
from app.telemetry import audit, log
from app.transports.disconnect import GOING_AWAY, SLOW, Disconnect, first, watch, while_valid
from app.transports.outbox import Outbox
from app.transports.resumable_session import Channel, NoWayBack, ResumableSession, ResumableSessions
from app.waiting import Waiter

SUBPROTOCOL = "realtime"
EARLY_BYTES = 256 * 1024
"""What is kept of a client that waits for its session: its settings and first items. Empty messages take room, too."""
TRY_LATER = 1013
FAREWELL = 1000
"""Closed on purpose; a page that is reloaded goes away with 1001, and a lost connection shows as 1005 or 1006."""


async def realtime(socket: WebSocket, service: Service, sessions: ResumableSessions) -> None:
    """One connection, from the handshake to the close: a new session, or one that its client comes back to."""
    token, caller = socket.query_params.get("resume"), caller_of(socket.scope)
    try:
        if beta.asked_for(socket.headers.get("openai-beta", ""), socket.scope.get("subprotocols", ())):
            await _refuse_beta(socket)
            return
        if token is not None:
            await _come_back(socket, service, *sessions.find(token, socket.query_params.get("after", ""), caller))
            return
        if service.full and socket.query_params.get("wait") == "true":
            await _wait(socket, service, sessions)
            return
        with service.admit(caller) as context:
            await accept(socket)
            await _converse(socket, service, context, sessions)
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))
    except NoWayBack as lost:
        await deny(socket, lost.status, lost.code, str(lost))
    except WebSocketDisconnect:
        pass


async def _wait(socket: WebSocket, service: Service, sessions: ResumableSessions) -> None:
    """A session for a client that would rather wait for it than be refused. Raises Closed if the line is full, too."""
    outbox = Outbox(service.settings.limits.unsent_s)
    with service.waiting(lambda place: outbox.put(encode(QueueUpdated(place))[0]), caller_of(socket.scope)) as waiter:
        await accept(socket)
        try:
            early = await in_line(socket, service, waiter, outbox)
            with service.admit(caller_of(socket.scope), waiter) as context:
                await _converse(socket, service, context, sessions, early)
        except Closed as closed:
            outbox.put(encode(Error(Broken(closed.code, str(closed)), None))[0])
            leave = Disconnect(TRY_LATER, "the server is full")
            await say_goodbye(socket, outbox, leave, service.settings.limits.send_timeout_s)
        except Disconnect as leave:
            await say_goodbye(socket, outbox, leave, service.settings.limits.send_timeout_s)


async def deny(socket: WebSocket, status: int, code: str, message: str) -> None:
    """Refuse before the upgrade."""
    headers = {"retry-after": "5"} if status in (429, 503) else {}
    await socket.send_denial_response(JSONResponse(error_body(status, code, message), status, headers))


async def _refuse_beta(socket: WebSocket) -> None:
    """As the hosted service does: an event, which clients show, and a close code of its own."""
    await accept(socket)
    log("session.beta_refused")
    await socket.send_text(encode(Error(beta.refusal(), None))[0])
    await socket.close(beta.CLOSE, f"invalid_request_error.{beta.CODE}")


async def accept(socket: WebSocket) -> None:
    """Upgrade; a browser is told the one protocol of those it offered."""
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def _converse(
    socket: WebSocket,
    service: Service,
    context: SessionContext,
    sessions: ResumableSessions,
    early: tuple[str | bytes, ...] = (),
) -> None:
    """A session's whole life, over this connection and those that its client comes back with.

    ``early`` is what the client said before there was a session.
    """
    channel = _channel(socket, service, early)
    resumable, model = ResumableSession(channel, caller_of(socket.scope)), socket.query_params.get("model", "")[:200]
    profile = replace(SOCKET, new_resume_token=lambda: sessions.issue(resumable))
    session = Session(context, resumable.emit, model, _start(socket), profile)
    resumable.away, resumable.back = session.away, session.back
    audit("session.opened", session=session.id, client=address_of(socket.scope))
    leave, begun_s = Disconnect(1000, ""), context.now()
    try:
        async with asyncio.TaskGroup() as tasks, aclosing(resumable.received()) as received:
            tasks.create_task(_carry(socket, channel, resumable, context.limits), name=f"write:{session.id}")
            tasks.create_task(watch(session, service), name=f"watch:{session.id}")
            tasks.create_task(while_valid(session, resumable.maker), name=f"key:{session.id}")
            await session.run(received)
            raise Disconnect(1000, "the client left", "gone")
    except* Disconnect as disconnects:
        leave = first(disconnects)
    finally:
        sessions.forget(resumable)
        resumable.end(leave)
    audit("session.closed", session=session.id, code=leave.code, reason=leave.reason, lasted_s=context.now() - begun_s)
    if not channel.over.is_set():
        await say_goodbye(socket, channel.outbox, leave, context.limits.send_timeout_s)


async def _carry(socket: WebSocket, channel: Channel, resumable: ResumableSession, limits: Limits) -> None:
    """Send what a session tells over one connection. Raises Leave if that is the session's end, too."""
    leave = Disconnect(1000, "the client left", "gone")
    try:
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(
                write(socket, channel.outbox, limits.send_timeout_s, channel.loop_time), name="write"
            )
            await channel.over.wait()
            writer.cancel()
    except* Disconnect as disconnects:
        leave = first(disconnects)
    if not resumable.keeps:
        raise leave
    if not resumable.carries(channel):
        leave = Disconnect(GOING_AWAY, "the client came back over another connection", "cut")
    await say_goodbye(socket, channel.outbox, leave, limits.send_timeout_s)
    resumable.detach(channel)


async def _come_back(socket: WebSocket, service: Service, resumable: ResumableSession, after: int) -> None:
    """A connection to a session that was opened over another one."""
    await accept(socket)
    limits = service.settings.limits
    channel, leave = _channel(socket, service), Disconnect(1000, "")
    for text in resumable.missed(after) or ():
        channel.outbox.put(text)
    resumable.attach(channel)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_end_with(resumable), name="session")
            await _carry(socket, channel, resumable, limits)
            raise Disconnect(1000, "the client left", "gone")
    except* Disconnect as disconnects:
        leave = first(disconnects)
    await say_goodbye(socket, channel.outbox, leave, limits.send_timeout_s)


async def _end_with(resumable: ResumableSession) -> None:
    await resumable.ended.wait()
    raise Disconnect(resumable.leave.code, resumable.leave.reason)


def _start(socket: WebSocket) -> dict[str, Any]:
    """The settings that the session begins with: those of the client's secret, and the kind that its address names."""
    secret = caller_of(socket.scope).secret
    kind = {"type": "transcription"} if socket.query_params.get("intent") == "transcription" else {}
    return {**(secret.session if secret is not None else {}), **kind}


def _channel(socket: WebSocket, service: Service, early: tuple[str | bytes, ...] = ()) -> Channel:
    loop_time = service.loop_time(caller_of(socket.scope))
    channel = Channel(Outbox(service.settings.limits.unsent_s), loop_time)
    channel.received = _received(socket, channel, service.slices, early)
    return channel


async def _received(
    socket: WebSocket, channel: Channel, slices: Slices, early: tuple[str | bytes, ...]
) -> AsyncGenerator[Received]:
    """What the client says, until it disconnects."""
    for frame in early:
        yield await read_message(frame, channel.loop_time, slices)

    def left(code: int) -> None:
        channel.farewell = code == FAREWELL

    async with aclosing(frames(socket, left)) as all:
        async for frame in all:
            yield await read_message(frame, channel.loop_time, slices)


async def read_message(frame: str | bytes, loop_time: LoopTime, slices: Slices) -> Received:
    """The command in a message, read in its client's part of the loop's time, or in a thread where it is large."""
    received = await Counted(slices.read(partial(decode_message, frame), len(frame)), loop_time)
    await loop_time.pause()
    return received


async def frames(socket: WebSocket, left: Callable[[int], None] = lambda code: None) -> AsyncGenerator[str | bytes]:
    """What comes, until the client disconnects; ``left`` gets the code that it closed with, or 1005."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            left(int(message.get("code") or 1005))
            return
        text = message.get("text")
        yield text if text is not None else message.get("bytes") or b""


def decode_message(frame: str | bytes) -> Received:
    """The command in a message, on whatever transport messages are texts or bytes."""
    if isinstance(frame, str):
        return decode(frame)
    return Received(Refusal("invalid_event", "Events are JSON in text messages."))


async def in_line(socket: WebSocket, service: Service, waiter: Waiter, outbox: Outbox) -> tuple[str | bytes, ...]:
    """Wait until one's turn; returns what the client said meanwhile. Raises Leave, or Closed if it takes too long."""
    limits, early = service.settings.limits, deque[str | bytes]()
    loop_time = service.loop_time(caller_of(socket.scope))
    try:
        async with asyncio.timeout(limits.wait_s), asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(write(socket, outbox, limits.send_timeout_s, loop_time), name="write"),
                tasks.create_task(_collect(socket, early), name="collect"),
                tasks.create_task(_end_with_server(service), name="watch"),
            ]
            await waiter.called.wait()
            for task in others:
                task.cancel()
    except* Disconnect as disconnects:
        raise first(disconnects) from None
    except* TimeoutError:
        raise Closed("server_full", f"No session became free within {limits.wait_s:g} s.") from None
    return tuple(early)


async def _collect(socket: WebSocket, early: deque[str | bytes]) -> None:
    """Keep what a waiting client says, up to a bound; the rest waits in the socket."""
    room = EARLY_BYTES
    while room > 0:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise Disconnect(1000, "the client left the line", "gone")
        early.append(message.get("text") or message.get("bytes") or b"")
        room -= len(early[-1]) + MESSAGE_BYTES


async def _end_with_server(service: Service) -> None:
    await service.draining.wait()
    raise Disconnect(GOING_AWAY, "the server is shutting down")


async def write(socket: WebSocket, outbox: Outbox, timeout_s: float, loop_time: LoopTime) -> None:
    """The only one who sends, in its client's part of the loop's time: an answer costs as much as what it answers.

    A client that takes nothing for too long is left.
    """
    while True:
        await outbox.changed()
        if outbox.overflowed:
            raise Disconnect(SLOW, "the client reads too slowly", "cut")
        try:
            await Counted(_send_all(socket, outbox, timeout_s), loop_time)
        except TimeoutError:
            raise Disconnect(SLOW, "the client does not read", "cut") from None
        except WebSocketDisconnect:
            raise Disconnect(1006, "the client vanished", "gone") from None


async def _send_all(socket: WebSocket, outbox: Outbox, timeout_s: float) -> None:
    """Empty the outbox. Raises TimeoutError if one message is not taken in time."""
    while (text := outbox.take()) is not None:
        async with asyncio.timeout(timeout_s):
            await socket.send_text(text)


async def say_goodbye(socket: WebSocket, outbox: Outbox, leave: Disconnect, timeout_s: float) -> None:
    """Send what is left and say goodbye; a peer that does not take it in time is cut off."""
    if leave.how == "gone":
        return
    try:
        if leave.how == "cut":
            raise TimeoutError
        await _send_all(socket, outbox, timeout_s)
        async with asyncio.timeout(timeout_s):
            await socket.close(leave.code, leave.reason)
    except (TimeoutError, WebSocketDisconnect, RuntimeError):  # RuntimeError: it is closed already
        abort = socket.scope.get("extensions", {}).get("parley.abort")
        if abort is not None:
            abort["call"]()
