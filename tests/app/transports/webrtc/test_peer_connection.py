"""One WebRTC connection: whatever ends it, and whenever, its ports are free afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aioice.ice
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.rate_limiter import RateLimiter
from app.settings import Settings
from app.transports.inbox import Inbox
from app.transports.webrtc.peer_connection import PeerConnection
from engine import CameraFeed

ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


@pytest.fixture(autouse=True)
def three_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ADDRESSES)


@asynccontextmanager
async def offered() -> AsyncGenerator[tuple[PeerConnection, str]]:
    """A connection, and an offer for it."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.createDataChannel("oai-events")
    peer.addTransceiver("audio")
    await peer.setLocalDescription(await peer.createOffer())
    try:
        inbox, loop_time = Inbox(RateLimiter(100, 1e6)), LoopTimeBudget(FairScheduler())
        yield PeerConnection("rtc_1", Settings(), inbox, loop_time, CameraFeed()), peer.localDescription.sdp
    finally:
        await peer.close()


def ports(peer: PeerConnection) -> set[asyncio.DatagramTransport]:
    (transport,) = peer._transports()
    return {protocol.transport for protocol in transport.transport._connection._protocols}


def open_sockets(transports: set[asyncio.DatagramTransport]) -> int:
    return sum(transport.get_extra_info("socket").fileno() != -1 for transport in transports)


@pytest.mark.parametrize("steps", range(12))
async def test_a_close_that_is_cancelled_in_any_step_frees_the_ports(steps: int) -> None:
    async with offered() as (peer, offer):
        await peer.accept(offer)
        opened = ports(peer)
        assert open_sockets(opened) == len(ADDRESSES)
        closing = asyncio.create_task(peer.free())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await peer.free()
        await asyncio.sleep(0)  # asyncio closes a socket in the step after
        assert open_sockets(opened) == 0


async def test_a_close_that_never_ends_frees_the_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.transports.webrtc.peer_connection.CLOSE_S", 0.05)
    async with offered() as (peer, offer):
        await peer.accept(offer)
        opened, close = ports(peer), peer._connection.close
        monkeypatch.setattr(peer._connection, "close", asyncio.Event().wait)
        await peer.free()
        await asyncio.sleep(0)
        assert open_sockets(opened) == 0
        await close()


async def test_a_close_that_fails_frees_the_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise ValueError

    async with offered() as (peer, offer):
        await peer.accept(offer)
        opened, close = ports(peer), peer._connection.close
        monkeypatch.setattr(peer._connection, "close", fail)
        await peer.free()
        await asyncio.sleep(0)
        assert open_sockets(opened) == 0
        await close()


@pytest.mark.parametrize("steps", range(4, 24))
async def test_an_offer_whose_answer_is_cancelled_in_any_step_leaves_no_port(steps: int) -> None:
    """The gate around every test looks for the sockets."""
    async with offered() as (peer, offer):
        accepting = asyncio.create_task(peer.accept(offer))
        for _ in range(steps):
            await asyncio.sleep(0)
        accepting.cancel()
        await asyncio.wait([accepting])
        await peer.free()
