"""What a call costs in a browser: from asking to the first sound, and from the server's word to silence at a barge-in.

Chromium with a fake microphone, a page of the test's own, and an AudioWorklet that hears what the page plays to 128
samples. Nothing of the page's own muting is at work here.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from itertools import count
from pathlib import Path
from typing import Any

import aioice.ice
import numpy as np
import pytest
import pytest_asyncio

from app.realtime.protocol.server_events import ServerEvent, SpeechStartedEvent
from app.realtime.timer_lateness import TimerLatenessEstimator
from app.transports.resumable_session import ResumableSession
from tests.app.rig import Running
from tests.web.browser import Page, browsing, written

pytestmark = [
    pytest.mark.media,
    pytest.mark.chromium,
    pytest.mark.node,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

ROUNDS = 12
PAUSE_S, VOICE_S, RATE_HZ = 3.0, 0.5, 48_000

EAR = """
registerProcessor("ear", class extends AudioWorkletProcessor {
  process([[samples]]) {
    if (samples) this.port.postMessage(samples.reduce((peak, x) => Math.max(peak, Math.abs(x)), 0));
    return true;
  }
});
"""

CALL = """async (ear) => {
  const now = () => performance.timeOrigin + performance.now();
  const context = new AudioContext();
  await context.resume();
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([ear], {type: "text/javascript"})));
  const peer = new RTCPeerConnection();
  const channel = peer.createDataChannel("oai-events");
  const call = (window.call = {events: [], loud: [], now, peer});
  call.send = (event) => (channel.send(JSON.stringify(event)), now());
  call.ask = (text) => {
    const content = [{type: "input_text", text}];
    call.send({type: "conversation.item.create", item: {type: "message", role: "user", content}});
    return call.send({type: "response.create"});
  };
  channel.onmessage = ({data}) => {
    const event = {...JSON.parse(data), at: now()};
    call.events.push(event);
    if (event.type === call.askAfter) call.ask("long 200");
  };
  peer.ontrack = ({streams: [stream]}) => {
    const voice = new Audio();
    voice.srcObject = stream;
    voice.play();
    const node = new AudioWorkletNode(context, "ear");
    node.port.onmessage = ({data}) => data > 0.01 && call.loud.push(now());
    context.createMediaStreamSource(stream).connect(node).connect(context.destination);
  };
  const plain = {echoCancellation: false, noiseSuppression: false, autoGainControl: false};
  const microphone = await navigator.mediaDevices.getUserMedia({audio: plain});
  microphone.getTracks().forEach((track) => peer.addTrack(track, microphone));
  await peer.setLocalDescription();
  const headers = {"content-type": "application/sdp"};
  const answer = await fetch("/v1/realtime/calls", {method: "POST", body: peer.localDescription.sdp, headers});
  await peer.setRemoteDescription({type: "answer", sdp: await answer.text()});
}"""

PLAYED = ("concealedSamples", "removedSamplesForAcceleration", "insertedSamplesForDeceleration")

STATS = """(async () => {
  const reports = [...(await window.call.peer.getStats()).values()];
  return reports.find((one) => one.type === "inbound-rtp" && one.kind === "audio");
})()"""


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _plain_loop() -> None:
    """asyncio's debug mode costs milliseconds a packet."""
    asyncio.get_running_loop().set_debug(False)


async def begin(page: Page, server: Running) -> None:
    await page.do("goto", f"{server.http}/livez")  # an empty page of the server's origin
    await page.value(f"({CALL})({json.dumps(EAR)})")
    await seen(page, "session.created", 1)


async def end(page: Page, server: Running) -> None:
    """A browser that is closed says no goodbye; the server would wait for it."""
    await page.value("window.call.peer.close()")
    await server.empty()


async def seen(page: Page, type: str, times: int) -> None:
    await page.until(f"window.call.events.filter((event) => event.type === '{type}').length >= {times}")


async def events(page: Page, type: str) -> list[dict[str, Any]]:
    return await page.value(f"window.call.events.filter((event) => event.type === '{type}')")


def silence(folder: Path, seconds: float) -> Path:
    return written(folder / "silence.wav", np.zeros(int(seconds * RATE_HZ)), RATE_HZ)


def voice(folder: Path) -> Path:
    """A user who says something again and again."""
    says = 0.5 * np.sin(2 * np.pi * 300 * np.arange(int(VOICE_S * RATE_HZ)) / RATE_HZ)
    turn = np.concatenate([says, np.zeros(int(PAUSE_S * RATE_HZ))])
    return written(folder / "voice.wav", np.concatenate([np.zeros(4 * RATE_HZ), *[turn] * ROUNDS]), RATE_HZ)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


async def test_from_asking_to_sound(server: Running, tmp_path: Path) -> None:
    """response.create to sound, less what the engine took of it."""
    delays: list[float] = []
    async with browsing(silence(tmp_path, 1.0)) as browser, browser.page(bypassCSP=True) as page:
        await begin(page, server)
        for n in range(ROUNDS):
            asked_ms = await page.value("window.call.ask('say: one two three')")
            await seen(page, "output_audio_buffer.stopped", n + 1)
            loud = [ms for ms in await page.value("window.call.loud") if ms > asked_ms]
            done = (await events(page, "response.done"))[-1]["response"]
            delays.append(loud[0] - asked_ms - done["parley"]["ledger"]["ttfa_ms"])
            await page.value("new Promise((done) => setTimeout(done, 400))")
        await end(page, server)
    median_ms = statistics.median(delays)
    print(f"\nasking -> sound in Chromium, less the engine's: {median_ms:.0f} ms median, {max(delays):.0f} most")
    assert median_ms <= 70


async def test_from_the_servers_word_to_silence(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """speech_started sent to the last sound of the answer that was interrupted."""
    said_ms: list[float] = []
    emit = ResumableSession.emit

    def noted(session: ResumableSession, event: ServerEvent) -> None:
        if isinstance(event, SpeechStartedEvent):
            said_ms.append(time.time() * 1000)
        emit(session, event)

    monkeypatch.setattr(ResumableSession, "emit", noted)
    detection = {"type": "server_vad", "create_response": False, "silence_duration_ms": 300}
    session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
    async with browsing(voice(tmp_path)) as browser, browser.page(bypassCSP=True) as page:
        await begin(page, server)
        await page.value(f"window.call.send({json.dumps({'type': 'session.update', 'session': session})})")
        await page.value("(window.call.askAfter = 'input_audio_buffer.committed', window.call.ask('long 200'))")
        for n in range(ROUNDS):
            await seen(page, "input_audio_buffer.committed", n + 1)
        loud = await page.value("window.call.loud")
        cut = await events(page, "conversation.item.truncated")
        await end(page, server)
    delays = [max((ms - at for ms in loud if at - 500 < ms < at + 500), default=-1.0) for at in said_ms[:ROUNDS]]
    delays = [delay for delay in delays if delay >= 0]  # an answer was being heard at that moment
    print(f"\nspeech_started -> silence in Chromium: {statistics.median(delays):.0f} ms median,", end=" ")
    print(f"{percentile(delays, 0.95):.0f} ms p95 of {len(delays)}, {len(cut)} cuts")
    assert len(delays) >= ROUNDS - 2
    assert percentile(delays, 0.95) <= 150


class Fixed(TimerLatenessEstimator):
    """A server that never sends farther ahead."""

    def ahead_s(self, now_s: float) -> float:
        return 0.0


async def stall() -> None:
    """Hold up the server's event loop: often for a little, and for a tenth of a second every three seconds."""
    for number in count():
        await asyncio.sleep(0.5)
        time.sleep(0.100 if number % 6 == 5 else 0.015)  # noqa: ASYNC251 - that is what is tried


async def test_a_browser_misses_less_of_a_server_that_comes_late_and_sends_farther_ahead(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser keeps what comes early, although its own buffer wants less, and hears what a stall holds up."""
    gaps: dict[type[TimerLatenessEstimator], list[int]] = {Fixed: [], TimerLatenessEstimator: []}
    async with browsing(silence(tmp_path, 1.0)) as browser:
        for kind in (Fixed, TimerLatenessEstimator) * 2:
            monkeypatch.setattr(server.service, "lateness", kind())
            async with browser.page(bypassCSP=True) as page:
                await begin(page, server)
                stalling = asyncio.create_task(stall())
                await page.value("window.call.ask('long 220')")  # 17 s
                await seen(page, "output_audio_buffer.started", 1)
                await asyncio.sleep(1.0)
                before = await page.value(STATS)
                await asyncio.sleep(14.0)
                after = await page.value(STATS)
                stalling.cancel()
                await end(page, server)
            parts = {name: (after[name] - before[name]) / 48 for name in PLAYED}
            gaps[kind].append(after["concealmentEvents"] - before["concealmentEvents"])
            print(
                f"\n{kind.__name__}: {gaps[kind][-1]} gaps;", ", ".join(f"{n} {ms:.0f} ms" for n, ms in parts.items())
            )
    assert sum(gaps[TimerLatenessEstimator]) < sum(gaps[Fixed])
