"""An additional WebSocket on a call (``/v1/realtime?call_id=…``, ``/v1/live/sessions/ID/attach``).

It receives the call's events and may send events, in the call's dialect, so that a backend can watch a page's call or
run its tools. Closing it does not end the call; the end of the call closes it. The call must belong to the backend's
key, or to a client secret that this key made.
"""

from __future__ import annotations

from contextlib import aclosing

from fastapi import WebSocket

from app.access.auth import caller_of
from app.ids import elsewhere
from app.realtime.protocol.dialect import Dialect
from app.refusal import Closed
from app.service import Service
from app.telemetry import audit
from app.transports.disconnect import Disconnect, first
from app.transports.open_calls import OpenCall, OpenCalls
from app.transports.websocket import SocketTransport, accept, deny
from engine.aio.task_group import CycleFreeTaskGroup


async def sideband(socket: WebSocket, service: Service, calls: OpenCalls, id: str, kind: type[Dialect]) -> None:
    """Serve one additional WebSocket on the call with this id. The call's dialect must be ``kind``."""
    call = calls.find(id, caller_of(socket.scope))
    if call is None or not isinstance(call.connection.resumable.dialect, kind):
        gone = elsewhere(id, service.settings.name)
        await deny(socket, 404, "call_not_found", f"No active call {id[:64]!r}.{gone}")
        return
    transport = SocketTransport(socket, service)
    transport.channel.dialect = call.connection.resumable.dialect
    try:
        with call.listening(transport.channel, service.settings.limits.sidebands):
            await accept(socket)
            await _follow(transport, call)
    except Closed as closed:
        await deny(socket, closed.status, closed.code, str(closed))


async def _follow(transport: SocketTransport, call: OpenCall) -> None:
    why, channel = Disconnect(), transport.channel
    audit("sideband.opened", call=call.id)
    try:
        async with CycleFreeTaskGroup() as tasks, aclosing(transport.frames()) as messages:
            tasks.create_task(channel.write(), name=f"sideband:{call.id}")
            tasks.create_task(_end_with(call), name=f"sideband-end:{call.id}")
            async for message in messages:
                call.inbox.put(await channel.read(message), len(message))
            raise Disconnect
    except* Disconnect as disconnects:
        why = first(disconnects)
    audit("sideband.closed", call=call.id, code=why.code)
    await channel.say_goodbye(why)


async def _end_with(call: OpenCall) -> None:
    await call.connection.resumable.ended.wait()
    raise Disconnect(1000, "the call is over", "goodbye")
