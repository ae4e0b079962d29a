"""How long sound is on its way through the server, measured; and that bad weather leaves no delay behind.

Medians: other work on the machine makes single packets late, and none of it is ours.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiortc.jitterbuffer import JitterBuffer

from app.realtime.protocol.server_events import AudioDeltaEvent, OutputItemRef
from app.transports import connection as module
from app.transports.webrtc import aiortc_compat
from app.transports.webrtc.audio_receiver import AudioReceiver
from app.transports.webrtc.opus_track import OpusTrack
from tests.app.rig import Running
from tests.app.transports.webrtc.caller import Caller
from tests.app.transports.webrtc.relay import Relay, relaying

FRAME = 480
NOISE = np.random.default_rng(5)


@pytest.fixture
async def _plain_loop() -> None:
    """asyncio's debug mode takes a stack trace for every call: milliseconds a packet, which no server pays."""
    asyncio.get_running_loop().set_debug(False)


class Microphone(OpusTrack):
    """A client's microphone that sends a packet the moment it has one, as browsers do; no two packets are alike."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.said: dict[bytes, float] = {}

    async def talk(self, seconds: float) -> None:
        begun_s = time.monotonic()
        for n in range(round(seconds / 0.02)):
            await asyncio.sleep(begun_s + n * 0.02 - time.monotonic())
            self._said_s = time.monotonic()
            self.push(NOISE.integers(-200, 200, FRAME, np.int16).tobytes())

    def _packet(self, pcm: Any) -> Any:
        packet = super()._packet(pcm)
        self.said[bytes(packet)] = self._said_s
        return packet

    _said_s = 0.0


class Ear:
    """Stands before the server's buffer and notes what comes out of it, and when."""

    def __init__(self, buffer: Any, note: Callable[[bytes], None]) -> None:
        self._buffer, self._note = buffer, note

    def add(self, packet: Any) -> Any:
        flag, frame = self._buffer.add(packet)
        if frame is not None:
            self._note(frame.data)
        return flag, frame


class Measured:
    """A call whose way in is measured: the delay of each packet that came out of the buffer, by when it was said."""

    def __init__(self, caller: Caller, microphone: Microphone) -> None:
        self.caller, self.microphone = caller, microphone
        self.delays: list[tuple[float, float]] = []

    def note(self, payload: bytes | None) -> None:
        if payload in self.microphone.said:
            said_s = self.microphone.said[payload]
            self.delays.append((said_s, time.monotonic() - said_s))

    def median_ms(self, from_s: float = 0.0) -> float:
        return 1000 * statistics.median(delay for said_s, delay in self.delays if said_s >= from_s)


@asynccontextmanager
async def measuring(
    server: Running, monkeypatch: pytest.MonkeyPatch, stock: bool = False, through: Relay | None = None
) -> AsyncGenerator[Measured]:
    """A call through ours, or through aiortc's own buffer."""
    microphone = Microphone()
    one = Measured(Caller(server, microphone, through), microphone)

    def attach(ears: AudioReceiver, receiver: Any) -> None:
        if stock:
            aiortc_compat.inside(receiver).jitter_buffer = Ear(JitterBuffer(capacity=16, prefetch=4), one.note)
        else:
            aiortc_compat.inside(receiver).jitter_buffer = ears
            decode = ears._decode_one
            ears._decode_one = lambda payload: (decode(payload), one.note(payload))[0]

    monkeypatch.setattr(AudioReceiver, "attach", attach)
    try:
        await one.caller.connect()
        yield one
    finally:
        await one.caller.hang_up()


async def bad_weather(measured: Measured, relay: Relay, seconds: float) -> float:
    """Speak through loss and spikes; when it was over."""
    talking = asyncio.create_task(measured.microphone.talk(seconds + 3.0))
    relay.loss = 0.05
    for _ in range(round(seconds / 1.5)):
        await asyncio.sleep(1.3)
        await relay.spike(0.2)
    relay.loss, over_s = 0.0, time.monotonic()
    await talking
    return over_s


@pytest.mark.bench  # it measures time: beside other tests it would measure them
@pytest.mark.fault("N3.3")
async def test_bad_weather_leaves_no_delay(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 % loss and spikes of 200 ms: within 2 s the way in is as short as before."""
    async with relaying() as relay, measuring(server, monkeypatch, through=relay) as measured:
        over_s = await bad_weather(measured, relay, 4.5)
        after_ms = measured.median_ms(from_s=over_s + 2.0)
    print(f"\nafter 5 % loss and 200 ms spikes, 2 s later: {after_ms:.1f} ms ({relay.dropped} packets lost)")
    assert relay.dropped
    assert after_ms <= 40


@pytest.mark.fault("N3.3")
@pytest.mark.slow
async def test_a_buffer_that_latches_is_seen(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: aiortc's own buffer keeps what the weather cost it."""
    async with relaying() as relay, measuring(server, monkeypatch, stock=True, through=relay) as measured:
        over_s = await bad_weather(measured, relay, 4.5)
        after_ms = measured.median_ms(from_s=over_s + 2.0)
    print(f"\naiortc's own buffer, 2 s later: {after_ms:.1f} ms")
    assert after_ms > 60


@pytest.mark.bench
@pytest.mark.usefixtures("_plain_loop")
async def test_a_callers_frame_is_soon_decoded(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measuring(server, monkeypatch) as measured:
        await measured.microphone.talk(2.0)
        median_ms = measured.median_ms()
    print(f"\ncaller's frame -> decoded: {median_ms:.2f} ms median of {len(measured.delays)}")
    assert len(measured.delays) > 75
    assert median_ms <= 10


@pytest.mark.bench
@pytest.mark.usefixtures("_plain_loop")
async def test_what_is_pushed_soon_leaves(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the samples' coming to the first packet at the client: from silence, twenty times."""
    connections: list[module.Connection] = []
    run = module.Connection.run

    async def noted(connection: module.Connection, kind: str, **names: str) -> None:
        connections.append(connection)
        await run(connection, kind, **names)

    monkeypatch.setattr(module.Connection, "run", noted)
    delays: list[float] = []
    caller = Caller(server, Microphone())
    try:
        await caller.connect()
        receiver: Any = caller.peer.getReceivers()[0]
        came = asyncio.Event()
        aiortc_compat.inside(receiver).jitter_buffer = Ear(JitterBuffer(capacity=16), lambda data: None)
        aiortc_compat.inside(receiver).jitter_buffer.add = lambda packet: (came.set(), (False, None))[1]
        for _ in range(20):
            await asyncio.sleep(0.2)  # until the silent packets behind the last one are over
            came.clear()
            pushed_s = time.monotonic()
            connections[0].resumable.emit(AudioDeltaEvent(OutputItemRef("", "", 0, True, True), bytes(2 * FRAME), 0.02))
            async with asyncio.timeout(5):
                await came.wait()
            delays.append(1000 * (time.monotonic() - pushed_s))
    finally:
        await caller.hang_up()
    print(f"\npushed -> first packet at the client: {statistics.median(delays):.2f} ms median, {max(delays):.2f} most")
    assert statistics.median(delays) <= 5
