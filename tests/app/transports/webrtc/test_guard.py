"""A call that is closed while it connects leaves no exception that nobody reads."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aiortc import RTCConfiguration, RTCPeerConnection

from app.transports.webrtc.guard import guard_connecting
from tests.app.rig import eventually


async def unread(*, guarded: bool) -> list[dict[str, Any]]:
    """What the loop is told of tasks that nobody reads, where a way is closed before it is connected."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    nobody_asked = RTCConfiguration(iceServers=[])
    caller, callee = RTCPeerConnection(nobody_asked), RTCPeerConnection(nobody_asked)
    if guarded:
        guard_connecting(callee, "rtc_1")
    try:
        caller.createDataChannel("oai-events")
        await caller.setLocalDescription(await caller.createOffer())
        await callee.setRemoteDescription(caller.localDescription)
        await callee.setLocalDescription(await callee.createAnswer())
        assert callee.sctp is not None
        await callee.sctp.transport.transport.stop()
        await eventually(lambda: not any("__connect" in repr(task) for task in asyncio.all_tasks()))
    finally:
        await caller.close()
        await callee.close()
    gc.collect()
    return told


async def test_a_call_closed_while_it_connects_fails_in_no_task() -> None:
    assert await unread(guarded=True) == []


async def test_aiortc_by_itself_does() -> None:
    (told,) = await unread(guarded=False)
    assert "RTCIceTransport is closed" in str(told["exception"])
