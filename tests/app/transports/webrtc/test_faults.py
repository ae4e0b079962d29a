"""Peers that vanish, flood, or send what is no media: counted, ignored, freed; others do not notice."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from typing import Any

import aioice.ice
import aioice.stun
import numpy as np
import pytest

from app.limits.rate_limiter import MESSAGE_BYTES, RateLimiter
from app.realtime.protocol.client_events import CommitAudio, InputSamples, Received
from app.transports.inbox import MAX_BYTES, MAX_MESSAGES, Inbox
from app.transports.webrtc.data_channel import UNSENT_BYTES
from tests.app.rig import Running, silence, tone
from tests.app.transports.webrtc.caller import Caller, calling
from tests.app.transports.webrtc.relay import relaying


@pytest.mark.fault("N1.2")
async def test_a_half_open_peer_is_found(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one moment on nothing comes. The clock of the consent checks (RFC 7675) is sped up fifty times."""
    missed, interval_s = aioice.ice.CONSENT_FAILURES, aioice.ice.CONSENT_INTERVAL
    assert missed * (1.2 * interval_s + 0.5) <= 30.0, "half-open peers are found within 30 s"
    monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", interval_s / 50)
    async with relaying() as relay:
        caller = Caller(server, through=relay)
        await caller.connect()
        relay.loss = 1.0
        await server.empty()
        await caller.hang_up()


@pytest.mark.fault("N5.2")
async def test_garbage_on_a_calls_port_is_ignored(server: Running) -> None:
    """From a stranger, without any key: also what aiortc alone would not survive, the empty and the overlong."""
    async with calling(server) as call:
        found = re.search(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+)", call.peer.remoteDescription.sdp)
        assert found
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for size in (0, 1, 12, 20, 1400, 60_000):
                for first in (b"", b"\x00\x01", b"\x16\xfe", b"\x80\x6f", b"\x80\xc8"):
                    stranger.sendto((first + os.urandom(size))[:size], (found[1], int(found[2])))
        await call.say("say: still here", output_modalities=["text"])
        await call.until("response.done")


@pytest.mark.fault("N5.3")
async def test_a_flood_of_stun_requests_disturbs_no_call(server: Running) -> None:
    """Twenty thousand from a stranger, half of them signed with a password that is none."""
    async with calling(server) as call:
        found = re.search(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+)", call.peer.remoteDescription.sdp)
        assert found
        requests = [stun_request(signed=n % 2 == 1) for n in range(400)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for n in range(20_000):
                stranger.sendto(requests[n % len(requests)], (found[1], int(found[2])))
                if n % 100 == 0:
                    await asyncio.sleep(0)
        await call.say("say: still here", output_modalities=["text"])
        await call.until("response.done")
        assert call.peer.connectionState == "connected"


def stun_request(signed: bool) -> bytes:
    """A stranger's, who knows no password."""
    request = aioice.stun.Message(aioice.stun.Method.BINDING, aioice.stun.Class.REQUEST)
    if signed:
        request.attributes["USERNAME"] = "a:b"
        request.add_message_integrity(b"no password")
    return bytes(request)


@pytest.mark.fault("N3.4")
async def test_speech_is_a_turn_even_through_a_bad_network(server: Running) -> None:
    """A packet in five is lost, and a burst of 100 ms; the answer's events come through the same network."""
    async with relaying() as relay, calling(server, through=relay) as call:
        relay.loss = 0.2
        call.mouth.say(np.concatenate([silence(0.2), tone(1.0), silence(1.5)]))
        await asyncio.sleep(0.6)
        relay.loss = 1.0
        await asyncio.sleep(0.1)
        relay.loss = 0.2
        committed = await call.until("input_audio_buffer.committed")
        assert [one["item_id"] for one in call.of("input_audio_buffer.speech_started")] == [committed["item_id"]]
        done = await call.until("response.done")
        assert done["response"]["status"] == "completed"
        assert relay.dropped
    await server.empty()


@pytest.mark.fault("N5.1", "N5.2")
async def test_what_a_caller_sends_as_media_or_as_an_event_may_be_anything(server: Running) -> None:
    """Under the keys that both ends agreed on: Opus that is none, other sources and types, texts that are no events."""
    async with calling(server) as call, calling(server) as other:
        sender: Any = call.peer.getSenders()[0]
        for payload in (b"", b"\xff", os.urandom(40), os.urandom(1200)):
            for kind in (0x60, 0x7F):
                await sender.transport._send_rtp(b"\x80" + bytes([kind]) + os.urandom(10) + payload)
        for message in ("{", "[]", '{"type": "no.such"}', "x" * 100_000, b"\x00\x01"):
            call.channel.send(message)
        for _ in range(5):
            assert (await call.until("error"))["error"]["type"] == "invalid_request_error"
        for one in (call, other):
            await one.say("say: still here", output_modalities=["text"])
            await one.until("response.done")
    await server.empty()


@pytest.mark.fault("N2.2")
async def test_a_caller_who_takes_no_events_is_left(serve_with: Any) -> None:
    async with serve_with(limits={"send_timeout_s": 0.3}) as server, relaying() as relay:
        caller = Caller(server, through=relay)
        await caller.connect()
        item = {"id": "long", "type": "message", "role": "user"}
        content = [{"type": "input_text", "text": "x" * 80_000}]
        await caller.send("conversation.item.create", item={**item, "content": content})
        await caller.until("conversation.item.done")
        relay.deaf = True
        for _ in range(4 * UNSENT_BYTES // 80_000):
            await caller.send("conversation.item.retrieve", item_id="long")
        await server.empty()
        await caller.hang_up()


@pytest.mark.fault("N2.2")
async def test_what_comes_in_is_bounded() -> None:
    """Sound that has no room is dropped, as on a bad line; a command can't be."""
    inbox = Inbox(RateLimiter(400, 4e6))
    inbox.put(Received(InputSamples(b"")), MAX_BYTES - MESSAGE_BYTES)
    inbox.put(Received(InputSamples(b"")), 1)
    assert not inbox.overflowed.is_set()
    inbox.put(Received(CommitAudio()), 1)
    assert inbox.overflowed.is_set()
    told = inbox.received(asyncio.Event())
    assert isinstance((await anext(told)).event, InputSamples)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(told)
    await told.aclose()


async def test_what_comes_in_is_bounded_in_number_too() -> None:
    inbox = Inbox(RateLimiter(400, 4e6))
    for _ in range(MAX_MESSAGES):
        inbox.put(Received(CommitAudio()), 0)
    assert not inbox.overflowed.is_set()
    inbox.put(Received(CommitAudio()), 0)
    assert inbox.overflowed.is_set()
