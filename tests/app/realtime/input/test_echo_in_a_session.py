"""Echo cancellation within a session's input buffer: an answer no longer interrupts itself, and the user still can."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest

from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.turn_events import OverlapStarted, TurnStarted
from app.realtime.ports import EchoCanceller
from app.realtime.protocol.options import SessionOptions
from engine import SPEAKER_RATE_HZ
from engine.audio.resampler import resample
from engine.core import MIC_RATE_HZ, Pcm, Wave
from tests.app.realtime.input.echoes import PIECE, late, voice
from tests.app.realtime.test_session import FakeEngine, Talk

DELAY = 2000
PACKET = SPEAKER_RATE_HZ // 10


class Loudness:
    """Takes every chunk above -60 dBFS for speech, as the network does with soft voices."""

    def probability(self, chunk: Wave) -> float:
        return float(np.square(chunk).mean() > 1e-6)


class Oracle:
    """Finds each piece in the microphone's recording, and returns the user alone."""

    def __init__(self, microphone: Pcm, user: Pcm) -> None:
        self._microphone = microphone.tobytes()
        self._user = user

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        at = self._microphone.find(near.tobytes()) // near.itemsize
        return self._user[at : at + len(near)]


async def held_at_s(
    microphone: Pcm, playback: Pcm, canceller: EchoCanceller | None, mode: Literal["auto", "always"] = "always"
) -> list[float]:
    """Play an answer to a session's input buffer, and return when speech holds it or stops it."""
    events: list[TurnEvent] = []
    context = Talk(FakeEngine()).session._context
    turns = dataclasses.replace(context.turns, echo_cancellation=mode)
    new = None if canceller is None else lambda: canceller
    context = dataclasses.replace(context, turns=turns, vad=Loudness, echo_canceller=new)
    buffer = InputAudioBuffer(context, SessionOptions(), events.append)
    samples = np.divide(resample(playback, MIC_RATE_HZ, SPEAKER_RATE_HZ), 32768, dtype=np.float32)
    found: list[float] = []
    for at in range(0, len(microphone), PIECE):
        if at % (5 * PIECE) == 0:
            sent = at * SPEAKER_RATE_HZ // MIC_RATE_HZ
            buffer.voice.playing(samples[sent : sent + PACKET])
        await buffer.add_samples(microphone[at : at + PIECE])
        if any(isinstance(event, OverlapStarted | TurnStarted) for event in events):
            found.append(at / MIC_RATE_HZ)
        events.clear()
    return found


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_loud_echo_holds_the_answer_unless_it_is_cancelled(cancels: bool) -> None:
    playback = voice(4)
    microphone = late(playback, DELAY, 0.9)
    canceller = Oracle(microphone, np.zeros_like(microphone)) if cancels else None
    assert bool(await held_at_s(microphone, playback, canceller)) is not cancels


async def test_the_first_echo_is_found_before_it_holds_the_answer() -> None:
    playback = np.concatenate([np.zeros(MIC_RATE_HZ, np.int16), voice(3)])
    microphone = late(playback, DELAY, 0.9)
    canceller = Oracle(microphone, np.zeros_like(microphone))
    assert not await held_at_s(microphone, playback, canceller, "auto")


async def test_a_user_is_heard_over_an_echo_that_is_cancelled() -> None:
    playback = voice(4)
    user = np.concatenate([np.zeros(2 * MIC_RATE_HZ, np.int16), voice(2, seed=1)])
    microphone = late(playback, DELAY, 0.9) + user
    found = await held_at_s(microphone, playback, Oracle(microphone, user))
    assert found[0] == pytest.approx(2.3, abs=0.3)


async def test_a_soft_user_is_heard_once_the_echo_is_known_to_be_as_soft() -> None:
    """A microphone with little gain: user and echo are 20 dB below what is played."""
    playback = voice(8, level=8000)
    user = np.concatenate([np.zeros(5 * MIC_RATE_HZ, np.int16), voice(3, seed=1, level=800)])
    microphone = late(playback, DELAY, 0.1) + user
    assert (await held_at_s(microphone, playback, None))[0] > 7, "once the answer itself pauses"
    assert (await held_at_s(microphone, playback, Oracle(microphone, user)))[0] == pytest.approx(5.3, abs=0.3)
