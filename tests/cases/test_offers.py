"""Offers of WebRTC clients that differ from what most browsers send."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from tests.app.rig import Running, silence, tone
from tests.app.transports.webrtc.caller import Caller

STOPPED = ("m=video 0 UDP/TLS/RTP/SAVPF 96", "c=IN IP4 0.0.0.0", "a=inactive", "a=mid:2", "a=rtpmap:96 VP8/90000")
VP9 = (
    "m=video 9 UDP/TLS/RTP/SAVPF 98",
    "c=IN IP4 0.0.0.0",
    "a=sendrecv",
    "a=rtcp-mux",
    "a=mid:2",
    "a=rtpmap:98 VP9/90000",
)
SDP = {"content-type": "application/sdp"}
TRANSPORT = ("a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:", "a=setup:")


@pytest.fixture
async def offer() -> str:
    """The offer of a client with a microphone and a data channel."""
    caller = Caller(None)  # pyright: ignore[reportArgumentType]
    try:
        return await caller.offer()
    finally:
        await caller.hang_up()


def transport_of(offer: str) -> list[str]:
    """The lines that describe the transport of the first media section."""
    first = offer.split("m=application")[0]
    return [line for line in first.split("\r\n") if line.startswith(TRANSPORT)]


def max_bundle(offer: str, fingerprint_above: bool) -> str:
    """The offer as written with ``bundlePolicy: max-bundle``: only the first section has a transport."""
    audio, channel = offer.split("m=application", 1)
    fingerprints = [line for line in transport_of(offer) if line.startswith("a=fingerprint:")]
    lines = [line for line in f"m=application{channel}".split("\r\n") if not line.startswith(TRANSPORT)]
    lines[0] = "m=application 0 UDP/DTLS/SCTP webrtc-datachannel"
    lines.insert(2, "a=bundle-only")
    if fingerprint_above:
        head, section = audio.split("m=audio", 1)
        kept = [line for line in section.split("\r\n") if line not in fingerprints]
        audio = head + "".join(f"{line}\r\n" for line in fingerprints) + "m=audio" + "\r\n".join(kept)
    return audio + "\r\n".join(lines)


async def answered(server: Running, offer: str) -> str:
    """Place a call with the offer, hang up, and return the answer."""
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post("/v1/realtime/calls", content=offer, headers=SDP)
        assert answer.status_code == 201, answer.text
        await http.post(f"{answer.headers['location']}/hangup")
    await server.empty()
    return answer.text


def section_of(sdp: str, kind: str) -> str:
    return f"m={kind}" + sdp.split(f"m={kind}", 1)[1].split("\r\nm=", 1)[0]


def bundle_of(sdp: str) -> list[str]:
    return sdp.split("a=group:BUNDLE", 1)[1].split("\r\n", 1)[0].split()


@pytest.mark.xfail(strict=True, reason="a rejected section without a transport of its own is refused")
async def test_a_stopped_camera_is_rejected_and_the_call_goes_on(server: Running, offer: str) -> None:
    answer = await answered(server, offer + "".join(f"{line}\r\n" for line in STOPPED))
    assert section_of(answer, "video").startswith("m=video 0 ")
    assert bundle_of(answer) == ["0", "1"], "a rejected section must not be in the bundle"


@pytest.mark.xfail(strict=True, reason="a camera without a common codec makes the whole offer fail")
async def test_a_camera_without_a_common_codec_is_rejected_and_the_call_goes_on(server: Running, offer: str) -> None:
    grouped = offer.replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 0 1 2")
    answer = await answered(server, grouped + "".join(f"{line}\r\n" for line in (*VP9, *transport_of(offer))))
    assert section_of(answer, "video").startswith("m=video 0 ")
    assert bundle_of(answer) == ["0", "1"], "a rejected section must not be in the bundle"


@pytest.mark.xfail(strict=True, reason="a bundle-only section without a transport of its own is refused")
@pytest.mark.parametrize("above", [False, True], ids=["in the section", "above the sections"])
async def test_a_bundle_only_section_uses_the_transport_of_the_first(above: bool, server: Running, offer: str) -> None:
    answer = await answered(server, max_bundle(offer, above))
    assert bundle_of(answer) == ["0", "1"]
    assert not section_of(answer, "application").startswith("m=application 0 ")


class VoiceOnly(Caller):
    """A caller whose offer has sound and no data channel."""

    async def call(self) -> None:
        await self.peer.close()
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.peer.addTrack(self.mouth)
        self.peer.on("track", lambda track: self.ears.append(asyncio.create_task(self._listen(track))))
        async with httpx.AsyncClient(base_url=self.server.http) as http:
            answer = await http.post("/v1/realtime/calls", content=await self.offer(), headers=SDP)
        assert answer.status_code == 201, answer.text
        await self.peer.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))


async def test_a_call_without_a_data_channel_is_answered_by_voice(server: Running) -> None:
    caller = VoiceOnly(server)
    try:
        await caller.call()
        caller.mouth.say(np.concatenate([tone(0.6), silence(1.0)]))
        await caller.sound()
    finally:
        await caller.hang_up()
    await server.empty()
