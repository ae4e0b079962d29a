"""What a call's client may cost by its data channel, over real calls: messages without end, channels, false reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiortc.rtcsctptransport import DataChunk, ForwardTsnChunk, SackChunk

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
