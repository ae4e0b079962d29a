"""What a call's client may cost by its data channel, over real calls: messages without end, channels, false reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiortc.rtcdtlstransport import RtpRouter
from aiortc.rtcsctptransport import DataChunk, ForwardTsnChunk, InitChunk, SackChunk, serialize_packet
from aiortc.rtp import RTCP_RTPFB_NACK, RtcpRtpfbPacket, RtpPacket

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.transports.webrtc.guard import MAX_SOURCES, guard_datagrams
from app.transports.webrtc.messages import AHEAD_FRAGMENTS, MAX_CHANNELS
from app.transports.webrtc.reassembly import MAX_MESSAGE_BYTES
from tests.app.rig import Running
from tests.app.transports.webrtc.caller import Caller, calling


@contextmanager
def endless(stream_id: int) -> Iterator[None]:
    """No message of this stream has a last fragment."""
    original = DataChunk.__bytes__

    def cut(self: DataChunk) -> bytes:
        if self.stream_id == stream_id:
            self.flags &= ~1
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataChunk, "__bytes__", cut)
        yield


async def still_here(call: Caller) -> None:
    await call.say("say: still here", output_modalities=["text"])
    await call.until("response.done")


async def test_a_message_that_never_ends_ends_the_call(server: Running) -> None:
    """The client is told why; another one notices nothing."""
    async with calling(server) as call, calling(server) as other:
        sctp: Any = call.peer.sctp
        with endless(901):
            sending = asyncio.create_task(sctp._send(901, 51, bytes(MAX_MESSAGE_BYTES + 2000), ordered=False))
            error = (await call.until("error"))["error"]
            await call.closed()
            await sending
        assert error["code"] == "message_too_large"
        assert str(MAX_MESSAGE_BYTES) in error["message"]
        await still_here(other)
    await server.empty()


async def test_the_largest_message_that_the_answer_tells_of_passes(server: Running) -> None:
    async with calling(server) as call:
        assert f"a=max-message-size:{MAX_MESSAGE_BYTES}" in call.peer.remoteDescription.sdp
        event = '{"type":"input_audio_buffer.clear","event_id":"e"}'
        call.channel.send(event + " " * (MAX_MESSAGE_BYTES - len(event)))
        await call.until("input_audio_buffer.cleared")
        await still_here(call)


async def test_channels_are_bounded(server: Running) -> None:
    """Some more than the one that carries the events do no harm; a thousand end the call."""
    async with calling(server) as call:
        for n in range(MAX_CHANNELS - 1):
            call.peer.createDataChannel(f"mine {n}")
        await still_here(call)
        for n in range(1000):
            call.peer.createDataChannel(f"more {n}")
        await call.closed()
    await server.empty()


async def test_what_aiortc_alone_would_work_on_for_seconds_is_dropped(server: Running) -> None:
    """Reports of 65536 fragments each that were never sent, and of streams that never were; fragments far ahead."""
    async with calling(server) as call:
        sctp: Any = call.peer.sctp
        report = SackChunk()
        report.cumulative_tsn, report.gaps = sctp._last_received_tsn, [(1, 0xFFFF)] * 200
        began = asyncio.get_running_loop().time()
        for _ in range(20):
            await sctp._send_chunk(report)
        for n in range(2000):
            ahead = DataChunk(flags=3)
            ahead.tsn, ahead.stream_id, ahead.protocol = sctp._local_tsn + AHEAD_FRAGMENTS + n & 0xFFFFFFFF, 3, 51
            ahead.user_data = b"x"
            await sctp._send_chunk(ahead)
        await still_here(call)
        print(f"{asyncio.get_running_loop().time() - began:.2f} s")
        given_up = ForwardTsnChunk()
        given_up.cumulative_tsn = sctp._local_tsn
        given_up.streams = [(n, 1) for n in range(MAX_CHANNELS + 200)]
        await sctp._send_chunk(given_up)
        await call.closed()
    await server.empty()


async def test_what_aiortc_stumbles_over_ends_no_call(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """A text that is no UTF-8, a channel that is opened twice, two beginnings of an association in one datagram."""
    async with calling(server) as call:
        sctp: Any = call.peer.sctp
        await sctp._send(call.channel.id, 51, b"\xff\xfe")
        await sctp._send(call.channel.id, 50, bytes([3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]) + b"x")
        both = InitChunk()
        both.initiate_tag, both.advertised_rwnd, both.outbound_streams, both.inbound_streams = 1, 9999, 1, 1
        both.initial_tsn = 1
        twice: Any = bytes(both) * 2
        await sctp.transport._send_data(serialize_packet(5000, 5000, 0, twice))
        await still_here(call)
    await server.empty()
    assert not [one.message for one in caplog.records if one.exc_info or "Traceback" in one.getMessage()]


async def test_streams_of_packets_are_bounded() -> None:
    """aiortc keeps counts of each source that it ever saw."""
    router = RtpRouter()
    receiver: Any = object()
    router.register_receiver(receiver, ssrcs=[1], payload_types=[96])
    transport: Any = SimpleNamespace(_rtp_router=router, _recv_next=None, transport=SimpleNamespace(_recv=None))
    guard_datagrams(transport, lambda: None, LoopTimeBudget(FairScheduler()), "rtc_1")
    for ssrc in range(1000):
        router.route_rtp(RtpPacket(payload_type=96, ssrc=ssrc))
    assert len(router.ssrc_table) == MAX_SOURCES
    assert router.route_rtp(RtpPacket(payload_type=96, ssrc=1)) is receiver


async def test_sound_is_not_sent_again(server: Running) -> None:
    """No answer offers it, but aiortc would: each report for up to six thousand packets."""
    async with calling(server) as call:
        assert "nack" not in call.peer.remoteDescription.sdp
        await call.say("say: one two three")
        await call.sound()
        await call.until("output_audio_buffer.stopped")
        receiver: Any = call.peer.getReceivers()[0]
        ((ssrc, heard),) = receiver._RTCRtpReceiver__remote_streams.items()
        said = list(range(heard.base_seq, heard.max_seq + 1))
        before = receiver.transport._RTCDtlsTransport__rx_packets
        for _ in range(50):
            report = RtcpRtpfbPacket(fmt=RTCP_RTPFB_NACK, ssrc=1, media_ssrc=ssrc)
            report.lost = said
            await receiver.transport._send_rtp(bytes(report))
        await still_here(call)
        assert len(said) > 10
        assert receiver.transport._RTCDtlsTransport__rx_packets - before < 5 * len(said)
