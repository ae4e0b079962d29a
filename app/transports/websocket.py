"""``WS /v1/realtime``: text frames to commands, notices to text frames; who may connect was decided before.

Each connection is one task group: the session, one writer, and a watch that ends it when the server drains or its hour
is over. Whatever ends first ends the others. Knows the protocol only as ``decode`` and ``encode``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

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
from app.transports.leave import SLOW, Leave, first, watch
from app.transports.outbox import Outbox

SUBPROTOCOL = "realtime"


async def realtime(socket: WebSocket, service: Service) -> None:
    """One connection, from the handshake to the close."""
    try:
        with service.admit() as house:
            await accept(socket)
            await _converse(socket, service, house)
    except Closed as closed:
        body = error_body(503, closed.code, str(closed))
        await socket.send_denial_response(JSONResponse(body, 503, {"retry-after": "5"}))
    except WebSocketDisconnect:
        pass


async def accept(socket: WebSocket) -> None:
    """Upgrade; a browser is told the one protocol of those it offered."""
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def _converse(socket: WebSocket, service: Service, house: House) -> None:
    outbox = Outbox(house.limits.unsent_s)
    model = socket.query_params.get("model", "")[:200]
    session = Session(house, lambda notice: _put(outbox, notice), model, _start(socket))
    log("session.opened", session=session.id, client=socket.client.host if socket.client else "")
    leave = Leave(1000, "")
    try:
        async with asyncio.TaskGroup() as tasks, aclosing(_told(socket)) as told:
            tasks.create_task(write(socket, outbox, house.limits.send_timeout_s), name=f"write:{session.id}")
            tasks.create_task(watch(session, service), name=f"watch:{session.id}")
            await session.run(told)
            raise Leave(1000, "the client left", "gone")
    except* Leave as leaves:
        leave = first(leaves)
    log("session.closed", session=session.id, code=leave.code, reason=leave.reason)
    await say_goodbye(socket, outbox, leave, house.limits.send_timeout_s)


def _start(socket: WebSocket) -> dict[str, Any]:
    """The settings that the session begins with: those of the client's secret, and the kind that its address names."""
    secret = secret_of(socket.scope)
    kind = {"type": "transcription"} if socket.query_params.get("intent") == "transcription" else {}
    return {**(secret.session if secret is not None else {}), **kind}


def _put(outbox: Outbox, notice: Notice) -> None:
    seconds = notice.seconds if isinstance(notice, AudioPiece) else 0.0
    for text in encode(notice):
        outbox.put(text, seconds)


async def _told(socket: WebSocket) -> AsyncGenerator[Told]:
    """What the client says, until it disconnects."""
    async with aclosing(frames(socket)) as all:
        async for frame in all:
            yield told_in(frame)


async def frames(socket: WebSocket) -> AsyncGenerator[str | bytes]:
    """What comes, until the client disconnects."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        yield text if text is not None else message.get("bytes") or b""


def told_in(frame: str | bytes) -> Told:
    """The command in a message, on whatever transport messages are texts or bytes."""
    if isinstance(frame, str):
        return decode(frame)
    return Told(Refusal("invalid_event", "Events are JSON in text messages."))


async def write(socket: WebSocket, outbox: Outbox, timeout_s: float) -> None:
    """The only one who sends. A client that takes nothing for too long is left."""
    while True:
        await outbox.changed()
        if outbox.overflowed:
            raise Leave(SLOW, "the client reads too slowly", "cut")
        try:
            await _send_all(socket, outbox, timeout_s)
        except TimeoutError:
            raise Leave(SLOW, "the client does not read", "cut") from None
        except WebSocketDisconnect:
            raise Leave(1006, "the client vanished", "gone") from None


async def _send_all(socket: WebSocket, outbox: Outbox, timeout_s: float) -> None:
    """Empty the outbox. Raises TimeoutError if one message is not taken in time."""
    while (text := outbox.take()) is not None:
        async with asyncio.timeout(timeout_s):
            await socket.send_text(text)


async def say_goodbye(socket: WebSocket, outbox: Outbox, leave: Leave, timeout_s: float) -> None:
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
