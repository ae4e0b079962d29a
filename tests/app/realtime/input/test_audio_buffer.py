"""The input buffer by itself: samples in, turn events out."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.turn_detector import Silero
from app.realtime.input.turn_events import TurnCommitted, TurnPaused, TurnResumed, TurnStarted, TurnStopped
from app.realtime.ports import Eagerness, EndpointingContext
from app.realtime.protocol.options import SessionOptions, session_options
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from tests.app.realtime.input.test_turn_detector import pcm16, speech
from tests.app.realtime.test_session import FakeEngine, Talk, talking
from tests.app.rig import LoudnessVad, silence, tone

SEMANTIC = {"type": "semantic_vad", "eagerness": "low"}


class Judge:
    """Waits two seconds, whatever was said, and keeps what it was asked. With ``sound`` it listens, too."""

    def __init__(self, sound: float | None = None) -> None:
        self.moments: list[EndpointingContext] = []
        self.heard: list[Any] = []
        self.window_s = 0.0 if sound is None else 1.0
        self._sound = sound

    def listen(self, pcm: Any) -> float:
        self.heard.append(pcm)
        assert self._sound is not None
        return self._sound

    def probability(self, moment: EndpointingContext) -> float:
        return 0.5 if moment.sound is None else moment.sound

    def silence_ms(self, moment: EndpointingContext, eagerness: Eagerness) -> int:
        self.moments.append(moment)
        return 2_000 if moment.sound is None else 250


class Listening:
    """A buffer with the context of a session, whose events are kept."""

    def __init__(
        self,
        noise_reduction: Any = None,
        engine: Any = None,
        judge: Any = None,
        words: Any = None,
        vad: Any = LoudnessVad,
        **detection: Any,
    ) -> None:
        self.end_of_turn, self.events = judge or Judge(), list[TurnEvent]()
        context: SessionContext = dataclasses.replace(
            Talk(engine or FakeEngine()).session._context,
            end_of_turn=self.end_of_turn,
            end_of_turn_models={} if words is None else {"words": words},
            vad=vad,
        )
        input = {"turn_detection": detection or None, "noise_reduction": noise_reduction}
        options, _ = session_options(SessionOptions(), {"audio": {"input": input}})
        self.buffer = InputAudioBuffer(context, options, self.events.append)

    async def append(self, *pieces: Any) -> None:
        for pcm in pieces:
            await self.buffer.append(pcm.tobytes())


@pytest.mark.parametrize("ended", [InputAudioBuffer.commit, InputAudioBuffer.clear])
async def test_the_silence_after_a_commit_or_clear_in_mid_word_is_no_turn(
    ended: Callable[[InputAudioBuffer], None],
) -> None:
    for cut in range(10_000, 18_000, 1_000):
        listening = Listening(type="server_vad", vad=Silero)
        await listening.buffer.add_samples(pcm16(speech("slt", 3)[:cut]))
        assert [type(event) for event in listening.events] == [TurnStarted]
        ended(listening.buffer)
        known = len(listening.events)
        await listening.append(silence(0.5))
        assert len(listening.events) == known


async def test_how_a_voice_fell_is_judged_in_its_pause_and_forgotten_once_it_goes_on() -> None:
    listening = Listening(**SEMANTIC)
    await listening.append(tone(1.0), silence(0.4))
    assert [type(event) for event in listening.events] == [TurnStarted, TurnPaused]
    assert listening.end_of_turn.moments[-1].falling != 0
    await listening.append(tone(0.3))
    assert isinstance(listening.events[-1], TurnResumed)
    assert listening.end_of_turn.moments[-1].falling == 0


async def test_a_model_that_listens_hears_a_pause_once_and_its_probability_ends_the_turn() -> None:
    listening = Listening(judge=Judge(sound=0.9), **SEMANTIC)
    await listening.append(tone(1.5), silence(0.15))
    await asyncio.to_thread(wait_for, lambda: len(listening.end_of_turn.heard) == 2)
    await listening.append(silence(0.2))
    listening.buffer._context.inference.close()
    warm_up, pause = listening.end_of_turn.heard
    assert len(warm_up) == 0
    assert len(pause) == 16_000  # its window
    stopped = listening.events[-1]
    assert isinstance(stopped, TurnStopped)
    assert stopped.utterance.over_probability == 0.9


async def test_what_a_model_heard_is_forgotten_once_the_user_goes_on() -> None:
    listening = Listening(judge=Judge(sound=0.9), **SEMANTIC)
    await listening.append(tone(0.5), silence(0.12))
    await asyncio.to_thread(wait_for, lambda: len(listening.end_of_turn.heard) == 2)
    await listening.append(tone(0.3))
    listening.buffer._context.inference.close()
    assert listening.end_of_turn.moments[-1].sound is None
    assert not any(isinstance(event, TurnStopped) for event in listening.events)


async def test_the_waits_are_tuned_to_the_pauses_of_the_speaker_if_a_share_of_cuts_is_given() -> None:
    waits_ms: list[int] = []
    for target in (None, 0.02):
        listening = Listening(judge=Judge(), target_cuts=target, **SEMANTIC)
        untuned_ms = listening.buffer.voice._detector.config.silence_duration_ms
        for _ in range(8):
            await listening.append(tone(0.3), silence(0.2))
        await listening.append(tone(0.3))
        waits_ms.append(listening.buffer.voice._detector.config.silence_duration_ms)
        assert waits_ms[0] == untuned_ms
        listening.buffer._context.inference.close()
    assert waits_ms[1] < waits_ms[0]


async def test_a_session_may_choose_the_model_that_listens_to_no_sound() -> None:
    words = Judge()
    listening = Listening(judge=Judge(sound=0.9), words=words, end_of_turn="words", **SEMANTIC)
    await listening.append(tone(0.5), silence(0.4))
    assert words.moments
    assert not listening.end_of_turn.heard


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline_s = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


async def test_a_voice_is_not_judged_where_the_silence_alone_ends_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    fallen: list[Any] = []

    def fall(pcm: Any) -> float:
        fallen.append(pcm)
        return 1.0

    monkeypatch.setattr("app.realtime.input.voice_turns.prosody_fall", fall)
    listening = Listening(type="server_vad")
    await listening.append(tone(0.5), silence(0.4))
    assert isinstance(listening.events[-1], TurnPaused)
    assert not fallen


async def test_a_silence_is_counted_anew_once_somebody_has_spoken_though_the_turn_was_cleared() -> None:
    async with talking() as talk:
        audio = {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 1000}}}
        await talk.say("session.update", session={"audio": audio})
        await talk.typed("hi")
        talk.now_s += 10
        await talk.hear(tone(0.3))
        await talk.say("input_audio_buffer.clear")
        await talk.hear(silence(2))
        assert not talk.of("input_audio_buffer.timeout_triggered")


async def test_a_silence_that_its_session_refused_is_not_found_again_and_again() -> None:
    listening = Listening(type="server_vad", idle_timeout_ms=300)
    refused: list[TurnEvent] = []

    def refuse(event: TurnEvent) -> None:
        refused.append(event)
        raise Refusal("conversation_full", "The conversation is full.")

    listening.buffer._turn.emit = refuse
    listening.buffer.voice.response_ended(0.0)
    for _ in range(10):
        try:
            await listening.append(silence(0.2))
        except Refusal:
            continue
    assert len(refused) == 1


NEAR = {"type": "near_field"}


class Reducing(FakeEngine):
    model = msgspec.structs.replace(FakeEngine.model, reduces_noise=True)


@pytest.mark.parametrize(("engine", "wanted", "less"), [
    (FakeEngine, None, False), (FakeEngine, NEAR, True), (Reducing, NEAR, False),
])  # fmt: skip
async def test_ears_that_do_not_reduce_noise_hear_less_of_it_where_that_is_asked_for(
    engine: Any, wanted: Any, less: bool
) -> None:
    listening = Listening(noise_reduction=wanted, engine=engine())  # the client ends the turn
    noise = np.random.default_rng(3).normal(0, 900, 3 * 24_000).astype(np.int16)
    await listening.append(*(noise[at : at + 480] for at in range(0, len(noise), 480)))
    listening.buffer.commit()
    (turn,) = [event.utterance for event in listening.events if isinstance(event, TurnCommitted)]
    assert turn.seconds == pytest.approx(3, abs=0.05)
    sent = float(np.square(noise.astype(float)).mean()) * 16 / 24  # what 16 kHz can carry of it
    assert (float(np.square(turn.pcm[16_000:].astype(float)).mean()) < sent / 3) is less


@pytest.mark.parametrize("wanted", [None, NEAR])
async def test_a_sound_that_does_not_end_is_no_user_where_noise_is_to_be_reduced(wanted: Any) -> None:
    listening = Listening(noise_reduction=wanted, type="server_vad")
    for _ in range(8):
        await listening.append(tone(1.0))
    kinds = [type(event) for event in listening.events]
    assert kinds[0] is TurnStarted
    assert (TurnStopped in kinds) is (wanted is not None)
