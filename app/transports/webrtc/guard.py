"""Checks, omitted by aiortc, of the datagrams that a call's own client sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiortc.rtp import RtcpRtpfbPacket

from app.limits.fair_scheduler import LoopTimeBudget
from app.telemetry import log
from app.transports.webrtc import aiortc_compat

MAX_SOURCES = 16
"""Maximum RTP streams of a client: aiortc keeps statistics of each, and reports them every second."""

MAX_BAD = 100
"""Datagrams that make aiortc fail before the connection is given up."""


def guard_connecting(connection: Any, id: str) -> None:
    """Let an RTCPeerConnection that is closed while connecting end silently, since nobody awaits aiortc's task."""
    inside = aiortc_compat.inside(connection)
    connect = inside.connect

    async def connected() -> None:
        try:
            await connect()
        except Exception as error:  # noqa: BLE001 - the call's connection deadline ends it
            log("call.unconnected", call=id, error=type(error).__name__)

    inside.connect = connected


def guard_datagrams(transport: Any, seen: Callable[[], None], loop_time: LoopTimeBudget, id: str) -> None:
    """Make an RTCDtlsTransport survive invalid datagrams, within the client's share of the loop's time.

    ``seen`` is called for each datagram.
    """
    dtls, ice = aiortc_compat.inside(transport), aiortc_compat.inside(transport.transport)
    receive, take_next = ice.recv, dtls.recv_next
    bad, took = 0, False

    async def received() -> bytes:
        nonlocal took
        data: bytes = await receive()
        seen()
        took = True
        loop_time.begin()
        return data

    async def taken() -> None:
        nonlocal bad, took
        try:
            await take_next()
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - an unreadable datagram is skipped
            bad += 1
            if bad == 1:
                log("call.bad_datagram", call=id, error=type(error).__name__)
            if bad > MAX_BAD:
                raise ConnectionError from None
        if took:  # a handshake also waits only for time to pass
            took = False
            loop_time.count()
            await loop_time.turn()

    ice.recv = received
    dtls.recv_next = taken
    _guard_router(dtls.rtp_router)


def _guard_router(router: Any) -> None:
    """Limit the number of streams in an RTCDtlsTransport's router, and ignore requests for lost packets."""
    route, route_report = router.route_rtp, router.route_rtcp

    def routed(packet: Any) -> Any:
        known = router.ssrc_table
        return route(packet) if packet.ssrc in known or len(known) < MAX_SOURCES else None

    def routed_report(packet: Any) -> Any:
        """Ignore retransmission requests: audio is not sent again, and one report could request six thousand
        packets.
        """
        return set() if isinstance(packet, RtcpRtpfbPacket) else route_report(packet)

    router.route_rtp = routed
    router.route_rtcp = routed_report
