"""What a caller may cost the others: messages without end, false reports, giant pictures; each with its control."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import aioice.ice
import av
import httpx
import pytest
from aiortc import MediaStreamTrack
from aiortc.rtcsctptransport import DataChunk, SackChunk
from websockets.asyncio.client import connect

from tests.app.rig import eventually
from tests.app.transports.webrtc.caller import Caller
from tests.app.transports.webrtc.offers import corpus
from tests.app.transports.webrtc.test_camera import giant
from tests.app.transports.webrtc.test_ice import STRANGE, stranger, ways
from tests.attacks.raw import upgraded
from tests.attacks.target import MB, Target, attacked

pytestmark = pytest.mark.attacks

LOOPBACK = "import aioice.ice; aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ['127.0.0.1']\n"
UNBOUNDED_MESSAGES = (
    "from app.transports.webrtc import peer_connection as module; module.bound_messages = lambda sctp, refuse: None\n"
)
UNBOUNDED_FRAMES = """
import av
from app.transports.webrtc import camera
camera.MAX_PIXELS, camera._decoder = 1 << 62, lambda kind: av.CodecContext.create("libvpx", "r")
"""
OPEN_PORTS = """
from app.transports.webrtc import peer_connection
peer_connection.use_ports = lambda transport, settings, followed: followed()
"""
UNCHECKED = """
import contextlib
from app.transports.webrtc import peer_connection
from app.transports.webrtc.offer import Offer
peer_connection.checked = lambda sdp: Offer(sdp, (), ())
peer_connection.PeerConnection._answerable = lambda self: contextlib.nullcontext()
"""
PATIENT = """
from app import server
from app.transports import outbox

outbox.MAX_CHARS, server.PONG_S = 1 << 40, 3600.0
"""
LONGEST_MS, MOST_MB = 100, 300


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


class Giant(MediaStreamTrack):
    """Two key frames a second of 64×64 pixels, whose header says 16383×16383."""

    kind = "video"

    def __init__(self) -> None:
        super().__init__()
        self._number, self._data = 0, giant(16383, 16383)

    async def recv(self) -> av.Packet:
        await asyncio.sleep(0.5)
        packet = av.Packet(self._data)
        packet.pts, packet.time_base = self._number * 45_000, Fraction(1, 90_000)
        self._number += 1
        return packet


@asynccontextmanager
async def calling(aim: Target, *tracks: Any) -> AsyncGenerator[Caller]:
    """A call to the target, with these tracks beside the microphone's."""
    caller: Any = Caller(aim)  # pyright: ignore[reportArgumentType]  # of a server it needs the address
    for track in tracks:
        caller.peer.addTrack(track)
    try:
        yield await caller.connect()
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await caller.hang_up()


async def endless_message(call: Caller, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send so many bytes of a message that has no last fragment, until all was taken or the call is over."""
    original = DataChunk.__bytes__

    def cut(self: DataChunk) -> bytes:
        if self.stream_id == 901:
            self.flags &= ~1
        return original(self)

    monkeypatch.setattr(DataChunk, "__bytes__", cut)
    sctp: Any = call.peer.sctp
    await sctp._send(901, 51, bytes(size), ordered=False)
    while sctp.state == "connected" and (sctp._outbound_queue or sctp._sent_queue):  # noqa: ASYNC110 - aiortc tells nobody
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_message_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """aiortc walks all fragments for each of them: 24 MB took 43 s. Here the first 256 kB are the last ones."""
    before = LOOPBACK + (UNBOUNDED_MESSAGES if not guarded else "")
    async with attacked(tmp_path, before=before, asks=guarded) as (aim, bystander, peak), calling(aim) as call:
        begun_s = aim.cpu_s()
        async with asyncio.timeout(60):
            await endless_message(call, 8 * MB, monkeypatch)
        refused = "error" in call.types()
        cpu_s = aim.cpu_s() - begun_s
        tracebacks = aim.tracebacks
    print(f"{cpu_s:.2f} s of CPU, {bystander.waits}, {peak.grown_mb:.0f} MB")
    assert refused == guarded
    if guarded:
        assert cpu_s < 2.0
        assert tracebacks == 0
        assert bystander.waits.broken is None
        assert bystander.waits.longest_ms <= LONGEST_MS
        assert peak.grown_mb <= MOST_MB
    else:
        assert cpu_s > 3.0


FLOODS: dict[str, str | bytes] = {
    "no event": "{}",
    "no JSON": "a",
    "empty": "",
    "binary": b"a",
    "settings": '{"type":"session.update","session":{"type":"realtime","instructions":"x"}}',
    "sound that no call takes": '{"type":"input_audio_buffer.append","audio":"AAAA"}',
}


@pytest.mark.parametrize("name", FLOODS)
async def test_nobody_waits_for_a_call_that_floods(tmp_path: Path, name: str) -> None:
    """As fast as its data channel takes them, for three seconds."""
    sent = 0
    async with attacked(tmp_path, before=LOOPBACK, asks=True) as (aim, bystander, peak), calling(aim) as call:
        end_s = asyncio.get_running_loop().time() + 3.0
        while asyncio.get_running_loop().time() < end_s and call.channel.readyState == "open":
            if call.channel.bufferedAmount < 100_000:
                for _ in range(200):
                    call.channel.send(FLOODS[name])
                sent += 200
            await asyncio.sleep(0.005)
        tracebacks, log = aim.tracebacks, len(aim.log)
    print(sent, bystander.waits, f"{peak.grown_mb:.0f} MB")
    assert sent > 1000
    assert tracebacks == 0
    assert log < 200_000
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert bystander.waits.answers > 3
    assert peak.grown_mb <= MOST_MB


@pytest.mark.parametrize("guarded", [True, False])
async def test_reports_of_what_was_never_sent(tmp_path: Path, guarded: bool) -> None:
    """Twenty datagrams, each with 200 gaps of 65535 fragments: aiortc counts them all, a second for each datagram."""
    before = LOOPBACK + (UNBOUNDED_MESSAGES if not guarded else "")
    async with attacked(tmp_path, before=before, asks=guarded) as (aim, bystander, _), calling(aim) as call:
        sctp: Any = call.peer.sctp
        report = SackChunk()
        report.cumulative_tsn, report.gaps = sctp._last_received_tsn, [(1, 0xFFFF)] * 200
        for _ in range(20 if guarded else 2):
            await sctp._send_chunk(report)
        await call.send("input_audio_buffer.clear")
        await call.until("input_audio_buffer.cleared")
        await asyncio.sleep(0.5)
    print(bystander.waits)
    if guarded:
        assert bystander.waits.broken is None
        assert bystander.waits.longest_ms <= LONGEST_MS
    else:
        assert bystander.waits.longest_ms > 500


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_picture_that_says_it_is_giant(tmp_path: Path, guarded: bool) -> None:
    """libvpx makes room for what a header says: 900 MB and two seconds for one frame."""
    before = LOOPBACK + (UNBOUNDED_FRAMES if not guarded else "")
    async with attacked(tmp_path, before=before, asks=guarded) as (aim, bystander, peak):
        async with calling(aim, Giant()) as call:
            if guarded:
                assert (await call.until("error"))["error"]["code"] == "picture_too_large"
            await asyncio.sleep(4)
            await call.send("input_audio_buffer.clear")
            await call.until("input_audio_buffer.cleared")
        tracebacks, warnings = aim.tracebacks, aim.log.count("failed to decode")
    print(bystander.waits, peak.grown_mb)
    if guarded:
        assert tracebacks == warnings == 0
        assert bystander.waits.broken is None
        assert bystander.waits.longest_ms <= LONGEST_MS
        assert peak.grown_mb <= MOST_MB
    else:
        assert peak.grown_mb > MOST_MB


SIDEBANDS, UPDATES = 8, 200


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarded", [True, False])
async def test_sidebands_that_nobody_reads(tmp_path: Path, guarded: bool) -> None:
    """One more has the call's settings told again and again, 90 kB each: who takes none of it for 2 s is let go."""
    path = "/v1/realtime?call_id="
    settings = {"type": "realtime", "instructions": "Be kind. " * 10_000}
    update = json.dumps({"type": "session.update", "session": settings})
    server = {"limits": {"sidebands": SIDEBANDS + 1, **({} if guarded else {"send_timeout_s": 3600.0})}}
    before = LOOPBACK + (PATIENT if not guarded else "")
    async with (
        attacked(tmp_path, server, before=before, asks=guarded) as (aim, bystander, peak),
        calling(aim) as call,
        connect(f"{aim.ws}?call_id={call.id}", max_size=None, compression=None) as reader,
    ):
        unread = [await upgraded(aim.port, path + call.id) for _ in range(SIDEBANDS)]
        for _, writer in unread:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with asyncio.timeout(120):
            for _ in range(UPDATES):
                await reader.send(update)
                while json.loads(await reader.recv())["type"] != "session.updated":
                    pass
                await call.until("session.updated")  # it reads, and stays
        if guarded:
            await eventually(lambda: aim.log.count("sideband.closed") == SIDEBANDS)
        closed = aim.log.count("sideband.closed")
        await call.send("input_audio_buffer.clear")
        await call.until("input_audio_buffer.cleared")
        for _, writer in unread:
            writer.transport.abort()
        tracebacks = aim.tracebacks
    print(f"{closed} closed, {bystander.waits}, {peak.grown_mb:.0f} MB")
    assert tracebacks == 0
    if guarded:
        assert bystander.waits.broken is None
        assert bystander.waits.longest_ms <= LONGEST_MS
        assert peak.grown_mb <= MOST_MB
    else:
        assert closed == 0


@pytest.mark.timeout(600)
async def test_two_thousand_offers_that_went_wrong(tmp_path: Path) -> None:
    """Each is answered or refused, in one shape; nothing is left of any, and nobody waits."""
    async with attacked(tmp_path, before=LOOPBACK, asks=True) as (aim, bystander, peak):
        base, descriptors = await offer_with_camera(), aim.descriptors()
        statuses = Counter[int]()
        async with httpx.AsyncClient(base_url=aim.http, timeout=30) as http:
            for n, body in enumerate(corpus(base, 2000)):
                answer = await posted(http, body, as_form=n % 5 == 0)
                statuses[answer.status_code] += 1
                if answer.status_code == 201:
                    await http.post(f"{answer.headers['location']}/hangup")
                else:
                    assert answer.json()["error"]["type"] == "invalid_request_error", (n, answer.text)
            await eventually(lambda: aim.descriptors() <= descriptors + 2)
        tracebacks = aim.tracebacks
    print(statuses, bystander.waits, peak.grown_mb)
    assert not {status for status in statuses if status not in (201, 400, 413)}
    assert statuses[201] > 100
    assert statuses[400] > 100
    assert tracebacks == 0
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert peak.grown_mb <= MOST_MB


async def test_without_the_check_some_offers_are_errors_of_ours(tmp_path: Path) -> None:
    """The control of the test above."""
    async with attacked(tmp_path, before=LOOPBACK + UNCHECKED) as (aim, _, _):
        base, wrong = await offer_with_camera(), 0
        async with httpx.AsyncClient(base_url=aim.http, timeout=30) as http:
            for body in corpus(base, 200):
                try:
                    answer = await posted(http, body, as_form=False)
                except httpx.TransportError:  # nobody answers
                    wrong += 1
                    break
                wrong += answer.status_code >= 500
                if answer.status_code == 201:
                    await http.post(f"{answer.headers['location']}/hangup")
        tracebacks = aim.tracebacks
    print(f"{wrong} without an answer, or with 5xx; {tracebacks} tracebacks")
    assert wrong + tracebacks > 0


async def offer_with_camera() -> str:
    caller = Caller(None)  # pyright: ignore[reportArgumentType]
    caller.peer.addTrack(Giant())
    sdp = await caller.offer()
    await caller.hang_up()
    return sdp


async def posted(http: httpx.AsyncClient, body: bytes, *, as_form: bool) -> httpx.Response:
    if as_form:
        return await http.post(
            "/v1/realtime/calls", files={"sdp": (None, body), "session": (None, '{"type":"realtime"}')}
        )
    return await http.post("/v1/realtime/calls", content=body, headers={"content-type": "application/sdp"})


@pytest.mark.parametrize("guarded", [True, False])
async def test_datagrams_of_strangers(tmp_path: Path, guarded: bool) -> None:
    """To a call's port, from an address that the call does not know: nothing comes back, and nothing is logged."""
    before = LOOPBACK + (OPEN_PORTS if not guarded else "")
    async with attacked(tmp_path, before=before, asks=guarded) as (aim, bystander, peak), calling(aim) as call:
        sent, rounds = 0, 150 if guarded else 2
        (way,) = ways(call.peer.remoteDescription.sdp)
        async with stranger(way) as (say, got):
            for _ in range(rounds):
                for datagram in STRANGE.values():
                    say(datagram)
                    sent += len(datagram)
                await asyncio.sleep(0.01)
            await call.send("input_audio_buffer.clear")
            await call.until("input_audio_buffer.cleared")
        back, tracebacks = sum(map(len, got)), aim.tracebacks
    print(f"{sent} bytes, {back} back, {tracebacks} tracebacks, {bystander.waits}, {peak.grown_mb:.0f} MB")
    assert (back == 0) == guarded
    assert (tracebacks == 0) == guarded
    if guarded:
        assert bystander.waits.broken is None
        assert bystander.waits.longest_ms <= LONGEST_MS
        assert peak.grown_mb <= MOST_MB
