"""What the server hears: at once, in order, without a delay that stays; and the part of aiortc that it replaces."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiortc import RTCPeerConnection

from app.transports.webrtc import aiortc_compat
from app.transports.webrtc import audio_receiver as module
from app.transports.webrtc.audio_receiver import AudioReceiver
from app.transports.webrtc.opus import FRAME, Encoder
from tests.app.rig import eventually, tone


class Heard:
    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.ears = AudioReceiver(self.blocks.append)
        self._encoder = Encoder()
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
        monkeypatch.setattr(module, name, seconds)
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
