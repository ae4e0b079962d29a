"""The server's voice as packets: when they leave, what their timestamps say, that they can be decoded."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from app.transports.webrtc.opus import FRAME, FRAME_TICKS, OpusDecoder, OpusEncoder
from app.transports.webrtc.opus_track import MOST_WAITING, SILENT_PACKETS, OpusTrack
from tests.app.rig import tone


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


async def nothing(voice: OpusTrack) -> None:
    """No packet comes now."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await voice.recv()


async def packet(voice: OpusTrack) -> Any:
    async with asyncio.timeout(45):
        return await voice.recv()


async def test_twenty_milliseconds_are_enough_for_a_packet() -> None:
    voice = OpusTrack(Clock())
    waiting = asyncio.create_task(voice.recv())
    voice.push(tone(0.02).tobytes())
    assert (await waiting).pts == 0


async def test_where_the_loop_was_held_up_what_is_said_late_comes_before_any_silence() -> None:
    """A stall delays the alarm that says the end, and what was to be said before it was due."""
    voice, due = OpusTrack(time.monotonic), asyncio.Event()

    async def pace() -> None:
        await due.wait()
        voice.push(tone(0.02).tobytes())

    voice.push(tone(0.02).tobytes())
    assert (await packet(voice)).pts == 0
    waiting, pacing = asyncio.create_task(packet(voice)), asyncio.create_task(pace())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.001, due.set)
    time.sleep(0.1)  # noqa: ASYNC251 - the stall
    late = await waiting
    await pacing
    heard = OpusDecoder().decode(bytes(late))
    assert np.abs(heard[len(heard) // 2 :]).max() > 1000, "a silent packet begins with what the codec still held"
    assert voice._silent == SILENT_PACKETS


async def test_what_plays_is_continuous_and_a_pause_moves_the_timestamp() -> None:
    clock = Clock()
    voice = OpusTrack(clock)
    voice.push(tone(0.06).tobytes())
    assert [(await packet(voice)).pts for _ in range(3)] == [0, 960, 1920]
    clock.now_s += 10
    for n in range(SILENT_PACKETS):
        assert (await packet(voice)).pts >= 480_000 + n * FRAME_TICKS
        clock.now_s += 0.02
    await nothing(voice)
    clock.now_s += 10
    voice.push(tone(0.02).tobytes())
    assert (await packet(voice)).pts == pytest.approx(20.1 * 48_000)


async def test_the_end_waits_until_the_listener_is_about_to_run_dry() -> None:
    """Silence that came at once would be a delay for what is said next."""
    clock = Clock()
    voice = OpusTrack(clock)
    voice.push(tone(0.06).tobytes())
    for _ in range(3):
        await packet(voice)
    clock.now_s -= 1.0  # the end is a second away
    await nothing(voice)
    clock.now_s += 1.04
    voice.push(tone(0.02).tobytes())
    assert decoded(await packet(voice)) > 1000, "what is said goes before the silence that was due"


async def test_what_is_left_of_a_frame_at_the_end_leaves_at_once() -> None:
    """The listener is still being told what came before: nobody waits until they are about to run dry."""
    clock = Clock()
    voice = OpusTrack(clock)
    voice.push(tone(0.07).tobytes())
    assert [(await packet(voice)).pts for _ in range(4)] == [0, 960, 1920, 2880]
    clock.now_s -= 1.0
    await nothing(voice)


async def test_a_voice_that_nobody_sends_keeps_little() -> None:
    voice = OpusTrack(Clock())
    voice.push(tone(5).tobytes())
    assert len(voice._frames) == MOST_WAITING


async def test_a_stopped_track_ends() -> None:
    voice = OpusTrack(Clock())
    waiting = asyncio.create_task(voice.recv())
    await asyncio.sleep(0)
    voice.stop()
    with pytest.raises(MediaStreamError):
        await waiting


def decoded(packet: Any) -> float:
    decoder = OpusDecoder()
    return float(np.abs(decoder.decode(bytes(packet))).max())


class TestOpus:
    def test_speech_comes_back(self) -> None:
        encoder, decoder, pcm = OpusEncoder(), OpusDecoder(), tone(1.0)
        heard = np.concatenate([decoder.decode(encoder.encode(pcm[at : at + FRAME])) for at in range(0, 24_000, FRAME)])
        assert len(heard) == pytest.approx(16_000, abs=32)
        assert np.sqrt((heard[1600:].astype(float) ** 2).mean()) == pytest.approx(8000 / 2**0.5, rel=0.1)

    def test_a_loss_fades_the_sound_before_it(self) -> None:
        encoder, decoder, pcm = OpusEncoder(), OpusDecoder(), tone(0.2)
        for at in range(0, len(pcm), FRAME):
            decoder.decode(encoder.encode(pcm[at : at + FRAME]))
        peaks = [int(np.abs(decoder.decode(None)).max()) for _ in range(5)]
        assert peaks[0] > 4000
        assert peaks == sorted(peaks, reverse=True)
        assert peaks[-1] < 1000

    @pytest.mark.parametrize("payload", [b"", b"\xff" * 12, bytes(1500), b"\x00"])
    def test_garbage_is_a_loss(self, payload: bytes) -> None:
        assert len(OpusDecoder().decode(payload)) <= 16_000 * 0.12


async def test_it_knows_how_far_it_is_ahead_of_the_listener() -> None:
    clock = Clock()
    voice = OpusTrack(clock)
    assert voice.ahead_s == 0.0
    voice.push(tone(0.08).tobytes())
    assert voice.ahead_s == pytest.approx(0.08)
    for _ in range(4):
        await packet(voice)
    assert voice.ahead_s == pytest.approx(0.08)
    clock.now_s += 0.05
    assert voice.ahead_s == pytest.approx(0.03)
    clock.now_s += 1.0
    assert voice.ahead_s == 0.0
