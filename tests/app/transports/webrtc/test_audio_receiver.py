"""What the server hears: at once, in order, without a delay that stays; and the part of aiortc that it replaces."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiortc import RTCPeerConnection

from app.transports import silence
from app.transports.webrtc import aiortc_compat
from app.transports.webrtc import audio_receiver as module
from app.transports.webrtc.audio_receiver import AudioReceiver
from app.transports.webrtc.opus import CLOCK_HZ, FRAME, OpusEncoder
from tests.app.rig import eventually, tone


class Heard:
    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.ears = AudioReceiver(self.blocks.append)
        self._encoder = OpusEncoder()
        pcm = tone(2.0)
        self._payloads = [self._encoder.encode(pcm[at : at + FRAME]) for at in range(0, len(pcm), FRAME)]

    def send(self, *numbers: int, ssrc: int = 1) -> None:
        for n in numbers:
            packet = SimpleNamespace(ssrc=ssrc, sequence_number=n, payload=self._payloads[n % len(self._payloads)])
            assert self.ears.add(packet) == (False, None)

    @property
    def ms(self) -> int:
        return round(sum(map(len, self.blocks)) / 16)


@pytest.fixture
async def heard() -> Any:
    one = Heard()
    yield one
    one.ears.close()


async def test_a_packet_is_heard_in_its_own_turn(heard: Heard) -> None:
    heard.send(1, 2, 3)
    assert heard.ms == pytest.approx(60, abs=2)
    heard.send(5, 4)
    assert heard.ms == pytest.approx(100, abs=2)


@pytest.mark.fault("N3.1")
async def test_a_loss_is_concealed_and_costs_no_time(heard: Heard) -> None:
    heard.send(*range(1, 10), 11, 12, 13)
    assert heard.ms == pytest.approx(260, abs=2)
    assert np.abs(heard.blocks[9]).max() > 1000


async def test_what_is_held_is_heard_when_the_sender_stops(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_S", 0.01)
    heard.send(1, 3)
    await eventually(lambda: len(heard.blocks) > 1)
    assert heard.ms == pytest.approx(60, abs=2)


@pytest.mark.fault("N6.1")
async def test_a_microphone_that_sends_nothing_is_silent_for_a_while(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a turn whose speaker mutes himself would never end; and one who is gone costs nothing for ever."""
    for name, seconds in (("QUIET_S", 0.01), ("QUIET_STEP_S", 0.01), ("LONGEST_QUIET_S", 0.05)):
        monkeypatch.setattr(silence, name, seconds)
    heard.send(1)
    await eventually(lambda: heard.ms >= 20 + 50 - 11)
    await asyncio.sleep(0.1)  # and no longer
    assert heard.ms == pytest.approx(20 + 50, abs=11)
    assert not heard.blocks[-1].any()


@pytest.mark.fault("N6.2")
async def test_another_source_counts_from_anew(heard: Heard) -> None:
    heard.send(100, 101)
    heard.send(7, 8, ssrc=2)
    assert heard.ms == pytest.approx(80, abs=2)


@pytest.mark.fault("N5.1")
async def test_a_bad_packet_is_skipped_and_never_raises(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    assert heard.ears.add(SimpleNamespace(ssrc=1)) == (False, None)
    assert "call.bad_packet" in caplog.text
    heard.send(1)
    assert heard.ms == pytest.approx(20, abs=2)


async def test_closed_ears_hear_nothing(heard: Heard) -> None:
    heard.ears.close()
    heard.send(1)
    heard.ears.close()
    assert heard.ms == 0


class Line:
    """A microphone that speaks in packets of 20 ms at 8 kHz, and a clock of the event loop that only it moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.began_s = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self.now_s)
        self.blocks: list[Any] = []
        self.ears = AudioReceiver(self.blocks.append, 8000, lambda payload: np.ones(160, np.int16), clock_hz=8000)
        self.number, self.ticks = 65_530, 2**32 - 4000  # both wrap soon

    def send(self, ssrc: int = 1) -> None:
        one = SimpleNamespace(ssrc=ssrc, sequence_number=self.number, timestamp=self.ticks, payload=b"x")
        self.number, self.ticks = (self.number + 1) % 2**16, (self.ticks + 160) % 2**32
        self.ears.add(one)

    def leave_out(self, seconds: float) -> None:
        """Save silence: the numbers go on, the timestamps jump."""
        self.ticks = (self.ticks + round(seconds * 8000)) % 2**32

    async def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            self.now_s += 0.01
            await asyncio.sleep(0)  # the alarm that is due rings
            await asyncio.sleep(0)

    @property
    def heard_s(self) -> float:
        return sum(map(len, self.blocks)) / 8000

    @property
    def silent_s(self) -> float:
        return sum(len(one) for one in self.blocks if not one.any()) / 8000


@pytest.fixture
async def line(monkeypatch: pytest.MonkeyPatch) -> Any:
    one = Line(asyncio.get_running_loop(), monkeypatch)
    yield one
    one.ears.close()


@pytest.mark.fault("N6.1")
@pytest.mark.parametrize("every_s", [0.1, 0.2, 0.4, 2.0])
async def test_silence_that_its_sender_saves_is_as_long_as_it_was(line: Line, every_s: float) -> None:
    """A packet now and then is all that comes of it; a turn would be over much too late."""
    for n in range(10):
        line.send()
        assert line.heard_s == pytest.approx(n * every_s + 0.02, abs=0.001)
        line.leave_out(every_s - 0.02)
        await line.wait(every_s)
    assert line.ears.made_up_s == pytest.approx(line.silent_s, abs=0.001)


async def test_a_packet_that_comes_late_or_early_in_it_changes_no_more(line: Line) -> None:
    for every_s in (0.46, 0.34, 0.44, 0.36, 0.4):
        line.send()
        line.leave_out(0.38)
        await line.wait(every_s)
    line.send()
    assert line.heard_s == pytest.approx(2.02, abs=0.021)


async def test_a_line_that_stalls_gets_no_more_silence_when_it_goes_on(line: Line) -> None:
    """All that it held up comes then; what was made up meanwhile is told apart from that."""
    line.send()
    await line.wait(1.0)
    made_up_s = line.ears.made_up_s
    for _ in range(50):
        line.send()
    assert line.ears.made_up_s == made_up_s == pytest.approx(0.8, abs=0.11)
    assert line.heard_s - line.silent_s == pytest.approx(51 * 0.02)
    line.leave_out(0.38)
    await line.wait(0.4)
    line.send()
    assert line.silent_s == pytest.approx(made_up_s + 0.38, abs=0.03)


async def test_timestamps_that_are_nonsense_make_no_more_silence_than_has_passed(line: Line) -> None:
    for n in range(50):
        line.send()
        line.leave_out(1000.0 if n % 3 else -50.0)
        await line.wait(0.02)
    line.send(ssrc=2)  # and another microphone's say nothing beside these
    assert line.heard_s <= line.now_s - line.began_s + 0.021


async def test_a_decoder_that_holds_back_its_first_samples_makes_no_pause(line: Line) -> None:
    encoder, ears = OpusEncoder(), AudioReceiver(line.blocks.append, clock_hz=CLOCK_HZ)
    for n in range(5):
        one = SimpleNamespace(ssrc=1, sequence_number=n, timestamp=n * 960, payload=encoder.encode(tone(0.02)))
        ears.add(one)
        await line.wait(0.02)
    ears.close()
    assert (ears.made_up_s, len(line.blocks)) == (0.0, 5)


async def test_a_long_pause_is_no_longer_than_any_turn_detection_waits_for(line: Line) -> None:
    line.send()
    line.leave_out(60.0)
    await line.wait(60.0)
    line.send()
    assert line.silent_s == pytest.approx(silence.LONGEST_QUIET_S, abs=0.11)


async def test_aiortc_has_the_attribute_that_is_replaced() -> None:
    """If this fails, aiortc has changed inside: see what its receiver does with packets now before raising the pin."""
    peer = RTCPeerConnection()
    receiver = peer.addTransceiver("audio").receiver
    assert hasattr(aiortc_compat.inside(receiver).jitter_buffer, "add")
    ears = AudioReceiver(lambda pcm: None)
    ears.attach(receiver)
    assert aiortc_compat.inside(receiver).jitter_buffer is ears
    await peer.close()
    with pytest.raises(RuntimeError, match="pyproject"):
        ears.attach(object())
