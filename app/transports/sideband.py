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
from app.transports.webrtc.call import Call
from app.transports.webrtc.calls import Calls
from app.transports.websocket import SocketTransport, accept, deny


async def sideband(socket: WebSocket, service: Service, calls: Calls) -> None:
    """One connection, from the handshake to the close."""
    id = socket.query_params["call_id"]
    call = calls.find(id, caller_of(socket.scope))
    if call is None:
        await deny(socket, 404, "call_not_found", f"There is no call {id[:64]!r}, or it is over.")
        return
    transport = SocketTransport(socket, service)
    try:
        with call.listening(transport.channel, service.settings.limits.sidebands):
            await accept(socket)
            await _follow(transport, call)
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))


async def _follow(transport: SocketTransport, call: Call) -> None:
    why, channel = Disconnect(), transport.channel
    audit("sideband.opened", call=call.id)
    try:
        async with asyncio.TaskGroup() as tasks, aclosing(transport.messages()) as messages:
            tasks.create_task(channel.write(), name=f"sideband:{call.id}")
            tasks.create_task(_end_with(call), name=f"sideband-end:{call.id}")
            async for message in messages:
                call.inbox.put(await channel.read(message), len(message))
            raise Disconnect
    except* Disconnect as disconnects:
        why = first(disconnects)
    audit("sideband.closed", call=call.id, code=why.code)
    await channel.say_goodbye(why)


async def _end_with(call: Call) -> None:
    await call.connection.resumable.ended.wait()
    raise Disconnect(1000, "the call is over", "goodbye")
