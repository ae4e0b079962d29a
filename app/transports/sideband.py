"""``WS /v1/realtime?call_id=rtc_…``: a second socket on a call, which sees its events and may send it commands.

For a backend that watches a page's call, or runs its tools. It leaves without ending the call, and ends with it. The
call is one of its own: made with its key, or with a client secret that its key made.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from fastapi import WebSocket

from app.auth import caller_of
from app.service import Closed, Service
from app.telemetry import audit
from app.transports.disconnect import Disconnect, first
from app.transports.outbox import Outbox
from app.transports.webrtc.call import Call
from app.transports.webrtc.calls import Calls
from app.transports.websocket import accept, deny, frames, read_message, say_goodbye, write


async def sideband(socket: WebSocket, service: Service, calls: Calls) -> None:
    """One connection, from the handshake to the close."""
    id = socket.query_params["call_id"]
    call, limits = calls.find(id, caller_of(socket.scope)), service.settings.limits
    if call is None:
        await deny(socket, 404, "call_not_found", f"There is no call {id[:64]!r}, or it is over.")
        return
    outbox = Outbox(limits.unsent_s)
    try:
        with call.listening(outbox, limits.sidebands):
            call.greet(outbox)
            await accept(socket)
            await _follow(socket, service, call, outbox)
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))


async def _follow(socket: WebSocket, service: Service, call: Call, outbox: Outbox) -> None:
    limits, leave = service.settings.limits, Disconnect(1000, "")
    loop_time = service.loop_time(caller_of(socket.scope))
    audit("sideband.opened", call=call.id)
    try:
        async with asyncio.TaskGroup() as tasks, aclosing(frames(socket)) as said:
            tasks.create_task(write(socket, outbox, limits.send_timeout_s, loop_time), name=f"sideband:{call.id}")
            tasks.create_task(_end_with(call), name=f"sideband-end:{call.id}")
            async for frame in said:
                call.say(await read_message(frame, loop_time, service.slices), len(frame))
            raise Disconnect(1000, "the client left", "gone")
    except* Disconnect as disconnects:
        leave = first(disconnects)
    audit("sideband.closed", call=call.id, code=leave.code)
    await say_goodbye(socket, outbox, leave, limits.send_timeout_s)


async def _end_with(call: Call) -> None:
    await call.over()
    raise Disconnect(1000, "the call is over")
