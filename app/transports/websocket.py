"""``WS /v1/realtime``: text frames to commands, notices to text frames; who may connect was decided before.

Each connection is one task group: the session, one writer, and a watch that ends it when the server drains or its hour
is over. Whatever ends first ends the others. Knows the protocol only as ``decode`` and ``encode``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

from fastapi import WebSocket
from fastapi.responses import JSONResponse
from starlette.websockets import WebSocketDisconnect

from app.auth import error_body, secret_of
from app.realtime.commands import Told
from app.realtime.events import decode
from app.realtime.events_out import encode
from app.realtime.house import House
from app.realtime.notices import AudioPiece, Notice
from app.realtime.session import Session
from app.realtime.trouble import Refusal
from app.service import Closed, Service
from app.telemetry import log
from app.transports.outbox import Outbox

SUBPROTOCOL = "realtime"
GOING_AWAY, SLOW = 1001, 1008


class Leave(Exception):
    """End the connection: say goodbye with ``code``, cut off a peer that takes nothing, or let one go that has left."""

    def __init__(self, code: int, reason: str, how: Literal["goodbye", "cut", "gone"] = "goodbye") -> None:
        super().__init__(reason)
        self.code, self.reason, self.how = code, reason, how


async def realtime(socket: WebSocket, service: Service) -> None:
    """One connection, from the handshake to the close."""
    if "call_id" in socket.query_params or socket.query_params.get("intent") == "transcription":
        message = "Sideband connections and transcription sessions are not served yet: connect with ?model=."
        await socket.send_denial_response(JSONResponse(error_body(400, "unsupported", message), 400))
        return
    try:
        with service.admit() as house:
            offered = socket.scope.get("subprotocols", ())
            await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
            await _converse(socket, service, house)
    except Closed as closed:
        body = error_body(503, closed.code, str(closed))
        await socket.send_denial_response(JSONResponse(body, 503, {"retry-after": "5"}))
    except WebSocketDisconnect:
        pass


async def _converse(socket: WebSocket, service: Service, house: House) -> None:
    outbox = Outbox(house.limits.unsent_s)
    secret = secret_of(socket.scope)
    model, start = socket.query_params.get("model", "")[:200], secret.session if secret is not None else None
    session = Session(house, lambda notice: _put(outbox, notice), model, start)
    log("session.opened", session=session.id, client=socket.client.host if socket.client else "")
    leave = Leave(1000, "")
    try:
        async with asyncio.TaskGroup() as tasks, aclosing(_told(socket)) as told:
            tasks.create_task(_write(socket, outbox, house), name=f"write:{session.id}")
            tasks.create_task(_watch(session, service), name=f"watch:{session.id}")
            await session.run(told)
            raise Leave(1000, "the client left", "gone")
    except* Leave as leaves:
        leave = _first(leaves)
    log("session.closed", session=session.id, code=leave.code, reason=leave.reason)
    await _close(socket, outbox, leave, house.limits.send_timeout_s)


def _put(outbox: Outbox, notice: Notice) -> None:
    seconds = notice.seconds if isinstance(notice, AudioPiece) else 0.0
    for text in encode(notice):
        outbox.put(text, seconds)


async def _told(socket: WebSocket) -> AsyncGenerator[Told]:
    """What the client says, until it disconnects."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        yield decode(text) if text is not None else Told(Refusal("invalid_event", "Events are JSON in text frames."))


async def _write(socket: WebSocket, outbox: Outbox, house: House) -> None:
    """The only one who sends. A client that takes nothing for too long is left."""
    while True:
        await outbox.changed()
        if outbox.overflowed:
            raise Leave(SLOW, "the client reads too slowly", "cut")
        try:
            await _send_all(socket, outbox, house.limits.send_timeout_s)
        except TimeoutError:
            raise Leave(SLOW, "the client does not read", "cut") from None
        except WebSocketDisconnect:
            raise Leave(1006, "the client vanished", "gone") from None


async def _send_all(socket: WebSocket, outbox: Outbox, timeout_s: float) -> None:
    """Empty the outbox. Raises TimeoutError if one message is not taken in time."""
    while (text := outbox.take()) is not None:
        async with asyncio.timeout(timeout_s):
            await socket.send_text(text)


async def _watch(session: Session, service: Service) -> None:
    """End the session when its time is over, or when the server drains and its answers have ended."""
    try:
        async with asyncio.timeout(service.settings.limits.session_s):
            await service.draining.wait()
    except TimeoutError:
        session.end("session_expired", "The session has reached its longest duration.")
        raise Leave(GOING_AWAY, "the session has expired") from None
    try:
        async with asyncio.timeout(service.settings.drain_s):
            await session.quiet()
    except TimeoutError:
        session.end("server_shutting_down", "The server is shutting down.")
    raise Leave(GOING_AWAY, "the server is shutting down")


def _first(group: BaseExceptionGroup[Leave]) -> Leave:
    """The reason to leave; if there are several, the one that leaves least to do."""
    leaves = [error for error in group.exceptions if isinstance(error, Leave)]
    return min(leaves, key=lambda leave: ("gone", "cut", "goodbye").index(leave.how))


async def _close(socket: WebSocket, outbox: Outbox, leave: Leave, timeout_s: float) -> None:
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
