"""Offers of WebRTC clients that differ from what most browsers send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import httpx
import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from app.refusal import Refusal
from app.transports.webrtc.offer import checked
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
    return sdp.split("a=group:BUNDLE", 1)[1].splitlines()[0].split()


async def test_a_stopped_camera_is_rejected_and_the_call_goes_on(server: Running, offer: str) -> None:
    answer = await answered(server, offer + "".join(f"{line}\r\n" for line in STOPPED))
    assert section_of(answer, "video").startswith("m=video 0 ")
    assert bundle_of(answer) == ["0", "1"], "a rejected section must not be in the bundle"


async def test_a_camera_without_a_common_codec_is_rejected_and_the_call_goes_on(server: Running, offer: str) -> None:
    grouped = offer.replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 0 1 2")
    answer = await answered(server, grouped + "".join(f"{line}\r\n" for line in (*VP9, *transport_of(offer))))
    assert section_of(answer, "video").startswith("m=video 0 ")
    assert bundle_of(answer) == ["0", "1"], "a rejected section must not be in the bundle"


@pytest.mark.parametrize("above", [False, True], ids=["in the section", "above the sections"])
async def test_a_bundle_only_section_uses_the_transport_of_the_first(above: bool, server: Running, offer: str) -> None:
    answer = await answered(server, max_bundle(offer, above))
    assert bundle_of(answer) == ["0", "1"]
    assert not section_of(answer, "application").startswith("m=application 0 ")


def with_line(sdp: str, *lines: str, kind: str = "audio") -> str:
    """Add lines at the end of the first section of a kind."""
    section = section_of(sdp, kind).rstrip("\r\n")
    return sdp.replace(section, "\r\n".join([section, *lines]))


def without(sdp: str, *starts: str) -> str:
    return "".join(f"{line}\r\n" for line in sdp.split("\r\n") if line and not line.startswith(starts))


def unbundled(sdp: str) -> str:
    """As softphones in browsers write it: one section of sound, without a mid and a bundle."""
    return without(sdp.split("m=application")[0], "a=mid:", "a=group:", "a=msid-semantic")


def plus(sdp: str, *lines: str, bundled: str = "") -> str:
    """Add a section; it has the transport of the first where it is in the bundle."""
    transport = transport_of(sdp) if bundled else []
    mid = [f"a=mid:{bundled}"] if bundled else []
    group = sdp.replace("a=group:BUNDLE 0 1", f"a=group:BUNDLE 0 1 {bundled}".rstrip())
    return group + "".join(f"{line}\r\n" for line in (*lines, *mid, *transport))


SIMULCAST = (
    "m=video 9 UDP/TLS/RTP/SAVPF 96 97 98 99 100 101 102", "c=IN IP4 0.0.0.0", "a=rtcp:9 IN IP4 0.0.0.0", "a=sendonly",
    "a=rtcp-mux", "a=rtcp-rsize", "a=extmap:14 urn:ietf:params:rtp-hdrext:toffset",
    "a=extmap:13/sendonly urn:3gpp:video-orientation", "a=extmap:300 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
    "a=rtpmap:96 VP8/90000", "a=rtcp-fb:96 goog-remb", "a=rtcp-fb:96 nack pli", "a=rtpmap:97 rtx/90000",
    "a=fmtp:97 apt=96", "a=rtpmap:98 VP9/90000", "a=fmtp:98 profile-id=0", "a=rtpmap:99 red/90000",
    "a=rtpmap:100 ulpfec/90000", "a=rtpmap:101 AV1/90000", "a=rtpmap:102 flexfec-03/90000",
    "a=fmtp:102 repair-window=10000000", "a=rid:h send", "a=rid:m send max-width=640", "a=rid:l send",
    "a=simulcast:send h;m;l", "a=msid:- 3f1f4d0e", "a=ssrc-group:FID 11 12", "a=ssrc:11 cname:x", "a=ssrc:12 cname:x",
    "a=ssrc:13",
)  # fmt: skip
CAMERA = (
    "m=video 9 UDP/TLS/RTP/SAVPF 125", "c=IN IP4 0.0.0.0", "a=sendrecv", "a=rtcp-mux", "a=rtpmap:125 H264/90000",
    "a=fmtp:125 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
)  # fmt: skip
TELETEXT = ("m=text 9 UDP/TLS/RTP/SAVPF 98", "c=IN IP4 0.0.0.0", "a=rtpmap:98 t140/1000")
SHARING = ("m=application 9 TCP/TLS/BFCP *", "c=IN IP4 0.0.0.0", "a=floorctrl:c-s")
MUSIC = ("m=audio 9 UDP/TLS/RTP/SAVPF 111", "c=IN IP4 0.0.0.0", "a=rtcp-mux", "a=rtpmap:111 opus/48000/2")
SURROUND = (
    "a=rtpmap:112 multiopus/48000/6", "a=fmtp:112 channel_mapping=0,4,1,2,3,5;num_streams=4",
    "a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level vad=on",
    "a=extmap:4/recvonly urn:example:none", "a=rtcp-xr:rcvr-rtt=all", "a=x-google-flag:conference", "a=candidate:x",
    "a=fmtp:18 annexb=no", "a=ptime:20", "a=maxptime:120", "a=sprop-source:1 audio", "b=AS:64", "i=a microphone",
)  # fmt: skip
WEAK = "a=fingerprint:sha-1 " + ":".join(["AB"] * 20)

KINDS: dict[str, tuple[Callable[[str], str], list[str]]] = {
    "aiortc": (lambda sdp: sdp, ["audio 9", "application 9"]),
    "Chromium with simulcast": (
        lambda sdp: plus(sdp, *SIMULCAST, bundled="2"),
        ["audio 9", "application 9", "video 9"],
    ),
    "Safari with a camera": (lambda sdp: plus(sdp, *CAMERA, bundled="2"), ["audio 9", "application 9", "video 9"]),
    "Firefox, all above the sections": (
        lambda sdp: without(sdp, *TRANSPORT).replace("a=group", "\r\n".join([*transport_of(sdp), "a=group"]), 1),
        ["audio 9", "application 9"],
    ),
    "Firefox, max-bundle": (lambda sdp: max_bundle(sdp, True), ["audio 9", "application 9"]),
    "a stopped camera": (lambda sdp: plus(sdp, *STOPPED), ["audio 9", "application 9", "video 0"]),
    "VP9 alone": (lambda sdp: plus(sdp, *VP9[:-2], VP9[-1], bundled="2"), ["audio 9", "application 9", "video 0"]),
    "a second microphone": (lambda sdp: plus(sdp, *MUSIC, bundled="2"), ["audio 9", "application 9", "audio 0"]),
    "two cameras": (
        lambda sdp: plus(plus(sdp, *CAMERA, bundled="2"), *CAMERA, "a=mid:3"),
        ["audio 9", "application 9", "video 9", "video 0"],
    ),
    "text": (lambda sdp: plus(sdp, *TELETEXT, bundled="t"), ["audio 9", "application 9", "text 0"]),
    "another application": (lambda sdp: plus(sdp, *SHARING), ["audio 9", "application 9", "application 0"]),
    "the rejected section first": (
        lambda sdp: "\r\nm=".join([head := sdp.split("\r\nm=", 1)[0], "\r\n".join(STOPPED)[2:], sdp[len(head) + 4 :]]),
        ["video 0", "audio 9", "application 9"],
    ),
    "an old data channel": (
        lambda sdp: without(sdp, "a=sctp-port").replace("UDP/DTLS/SCTP webrtc-datachannel", "DTLS/SCTP 5000"),
        ["audio 9", "application 0"],
    ),
    "an old fingerprint in addition": (lambda sdp: with_line(sdp, WEAK), ["audio 9", "application 9"]),
    "attributes that nobody knows": (lambda sdp: with_line(sdp, *SURROUND), ["audio 9", "application 9"]),
    "host names": (
        lambda sdp: with_line(re.sub(r"c=IN IP4 \S+", "c=IN IP4 phone.example.org", sdp), "a=rtcp:9 IN IP4 x.invalid"),
        ["audio 9", "application 9"],
    ),
    "a softphone in a browser": (unbundled, ["audio 9"]),
    "a softphone with G.711": (
        lambda sdp: re.sub(r"m=audio \d+ UDP/TLS/RTP/SAVPF", "m=audio 4000 RTP/SAVPF 0 8 18", unbundled(sdp)),
        ["audio 9"],
    ),
    "a stopped camera of a softphone": (
        lambda sdp: unbundled(sdp) + "\r\n".join(STOPPED[:3]) + "\r\n",
        ["audio 9", "video 0"],
    ),
    "sound that is only received": (lambda sdp: sdp.replace("a=sendrecv", "a=recvonly"), ["audio 9", "application 9"]),
    "line feeds alone": (lambda sdp: sdp.replace("\r\n", "\n"), ["audio 9", "application 9"]),
}
"""Shapes of offers that clients send, and the sections that an answer to each has."""


async def test_every_shape_of_offer_is_answered(server: Running, offer: str) -> None:
    wrong: dict[str, object] = {}
    for name, (shape, sections) in KINDS.items():
        offered = shape(offer)
        answer = await answered(server, offered)
        found = re.findall(r"(?m)^m=(\S+ \d+)", answer)
        mids = [re.findall(r"(?m)^a=mid:(\S+)", sdp) for sdp in (offered, answer)]
        served = [mid for mid, section in zip(mids[0], sections, strict=False) if not section.endswith(" 0")]
        bundled = [mid for mid in bundle_of(offered) if mid in served] if "BUNDLE" in offered else []
        is_right = (
            [section if section.endswith(" 0") else section.split()[0] + " 9" for section in found] == sections
            and mids[0] == mids[1]
            and (bundle_of(answer) if "BUNDLE" in answer else []) == bundled
        )
        if not is_right:
            wrong[name] = answer
    assert wrong == {}


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (lambda sdp: without(sdp, "a=fingerprint:") + WEAK + "\r\n", "lacks its DTLS fingerprint"),
        (lambda sdp: "m=application" + sdp.split("m=application")[1], "no audio section with Opus"),
        (lambda sdp: re.sub(r"m=audio \d+", "m=audio 0", sdp), "no audio section with Opus"),
        (lambda sdp: sdp.replace("a=mid:1", "a=mid:0"), "unique mid"),
        (lambda sdp: without(sdp, "a=setup:"), "lacks its DTLS fingerprint"),
        (lambda sdp: sdp.replace("m=audio", "m=audio x", 1), "is not valid"),
        (lambda sdp: "hello", "no audio section with Opus"),
        (lambda sdp: "", "no audio section with Opus"),
    ],
)
def test_an_offer_that_cannot_be_answered_is_refused_in_one_sentence(
    shape: Callable[[str], str], why: str, offer: str
) -> None:
    with pytest.raises(Refusal, match=rf"^The SDP offer [^.]*{why}[^.]*\.$"):
        checked(shape(offer))


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
