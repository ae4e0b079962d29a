"""The speaker gate in an input buffer: whose speech opens a turn, and holds or stops an answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from app.realtime.inference_thread import InferenceThread
from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.speaker_gate import CHECKS
from app.realtime.input.turn_events import (
    OverlapStarted,
    SpeakerFound,
    TurnCommitted,
    TurnDropped,
    TurnStarted,
    TurnStopped,
    VoiceBuffered,
)
from app.realtime.input.voiceprint import written
from app.realtime.protocol.options import SessionOptions, session_options
from engine import MIC_RATE_HZ
from tests.app.realtime.test_session import FakeEngine, Talk
from tests.app.rig import silence
from tests.app.voices import USER_HZ, PitchEncoder, embedding_of, other, user

STEP = 480  # samples at 24 kHz: 20 ms
VOICEPRINT = written(embedding_of(USER_HZ))


class Immediate(InferenceThread):
    """Has each result at once, unless it is ``stuck``."""

    stuck = False

    def run(self, work: Any, pcm: Any) -> Future[Any]:
        known = Future[Any]()
        if self.stuck:
            return known
        try:
            known.set_result(work(pcm))
        except Exception as error:  # noqa: BLE001  # as an executor does
            known.set_exception(error)
        return known


class Hearing:
    """An input buffer that tells voices apart, and its events."""

    def __init__(self, speaker: str = "enrolled", labels: bool = False) -> None:
        self.events: list[TurnEvent] = []
        self.encoder = PitchEncoder()
        self.inference = Immediate()
        context = Talk(FakeEngine()).session._context
        self.context = dataclasses.replace(context, speaker_encoder=self.encoder, inference=self.inference)
        self.options = options(speaker, labels)
        self.buffer = InputAudioBuffer(self.context, self.options, self._take)

    def _take(self, event: TurnEvent) -> None:
        self.events.append(event)
        if isinstance(event, TurnStopped):
            event.utterance.close()

    async def hear(self, *pieces: Any) -> list[type]:
        """Append sound as a microphone does, and return the kinds of the new events."""
        known = len(self.events)
        pcm = np.concatenate(pieces)
        for at in range(0, len(pcm), STEP):
            await self.buffer.append(pcm[at : at + STEP].tobytes())
        return [type(event) for event in self.events[known:]]


def options(speaker: str, labels: bool = False) -> SessionOptions:
    voiceprint = VOICEPRINT if speaker == "enrolled" else None
    detection = {"type": "server_vad", "speaker": speaker, "voiceprint": voiceprint}
    patch = {"audio": {"input": {"turn_detection": detection}}, "parley": {"speakers": labels}}
    return session_options(SessionOptions(), patch)[0]


@pytest.fixture
def hearing() -> Iterator[Hearing]:
    one = Hearing()
    yield one
    one.inference.close()


async def test_another_person_opens_no_turn_and_the_user_does(hearing: Hearing) -> None:
    await hearing.hear(other(5.0), silence(1.0))
    assert not any(isinstance(event, TurnStarted | OverlapStarted) for event in hearing.events)
    assert TurnDropped in map(type, hearing.events)
    heard = await hearing.hear(user(2.0), silence(1.0))
    assert [kind for kind in heard if kind in (TurnStarted, TurnStopped)] == [TurnStarted, TurnStopped]


async def test_without_the_setting_any_voice_opens_a_turn_at_once() -> None:
    hearing = Hearing("any")
    assert (await hearing.hear(other(0.2)))[0] is TurnStarted
    assert not hearing.encoder.heard


async def test_the_turn_has_all_that_the_user_said(hearing: Hearing) -> None:
    await hearing.hear(silence(1.0), user(2.0), silence(1.0))
    turn = next(event.utterance for event in hearing.events if isinstance(event, TurnStopped))
    assert turn.start == pytest.approx(0.7 * MIC_RATE_HZ, abs=1200)
    assert np.count_nonzero(np.abs(turn.pcm) > 1000) > 1.7 * MIC_RATE_HZ


async def test_until_the_voice_is_judged_clients_get_no_words_and_the_answer_is_prepared(hearing: Hearing) -> None:
    heard = await hearing.hear(user(0.4))
    assert heard == [VoiceBuffered]
    assert hearing.buffer.voice._turn.utterance is not None
    assert hearing.buffer.voice._turn.utterance.held
    heard = await hearing.hear(user(0.4))
    assert heard == [TurnStarted]
    assert not hearing.buffer.voice._turn.utterance.held


async def test_a_short_word_of_the_user_is_judged_in_its_pause(hearing: Hearing) -> None:
    heard = await hearing.hear(user(0.4), silence(1.0))
    assert [kind for kind in heard if kind in (TurnStarted, TurnStopped)] == [TurnStarted, TurnStopped]
    assert TurnStarted not in await hearing.hear(other(0.4), silence(1.0))


async def test_the_first_voice_becomes_the_users() -> None:
    hearing = Hearing("first")
    await hearing.hear(user(2.0), silence(1.0), user(2.0), silence(1.0))
    assert [type(event) for event in hearing.events].count(TurnStopped) == 2
    assert hearing.encoder.heard == [pytest.approx(4 * MIC_RATE_HZ, rel=0.1)], "3 s of speech, once"
    assert TurnStarted not in await hearing.hear(other(3.0), silence(1.0))
    assert TurnStarted in await hearing.hear(user(1.0), silence(1.0))


async def test_the_user_who_follows_another_person_without_a_pause_opens_a_turn(hearing: Hearing) -> None:
    heard = await hearing.hear(other(3.0), user(3.0), silence(1.0))
    assert [kind for kind in heard if kind in (TurnStarted, TurnStopped)] == [TurnStarted, TurnStopped]


async def test_another_person_does_not_hold_an_answer_and_the_user_does(hearing: Hearing) -> None:
    hearing.buffer.voice.playing(np.zeros(24_000 * 20, np.float32))
    assert not {OverlapStarted, TurnStarted} & {*await hearing.hear(other(3.0), silence(1.0))}
    assert OverlapStarted in await hearing.hear(user(1.0))


async def test_a_judgement_that_does_not_come_loses_no_turn(hearing: Hearing) -> None:
    hearing.inference.stuck = True
    assert TurnStarted in await hearing.hear(user(1.0), silence(1.0))


async def test_an_embedding_that_fails_loses_no_turn_and_is_logged_once(
    hearing: Hearing, caplog: pytest.LogCaptureFixture
) -> None:
    hearing.encoder.error = ValueError("no weights")
    for _ in range(2):
        assert TurnStarted in await hearing.hear(user(1.0), silence(1.0))
    assert [record.message for record in caplog.records].count(
        "A speaker embedding failed (no weights); such voices pass. This is logged once."
    ) == 1


async def test_a_commit_accepts_a_voice_that_is_not_judged_yet(hearing: Hearing) -> None:
    await hearing.hear(other(0.4))
    hearing.buffer.commit()
    assert [type(event) for event in hearing.events][-2:] == [TurnStarted, TurnCommitted]


async def test_a_clear_drops_a_voice_that_is_not_judged_yet(hearing: Hearing) -> None:
    await hearing.hear(user(0.4))
    hearing.buffer.clear()
    assert type(hearing.events[-1]) is TurnDropped
    assert TurnStarted in await hearing.hear(user(1.0))


async def test_switching_the_gate_off_accepts_the_voice_under_judgement(hearing: Hearing) -> None:
    await hearing.hear(other(0.4))
    hearing.buffer.configure(options("any"))
    assert type(hearing.events[-1]) is TurnStarted
    await hearing.hear(silence(1.0))
    assert (await hearing.hear(other(0.2)))[0] is TurnStarted


async def test_the_same_settings_again_do_not_forget_the_users_voice() -> None:
    hearing = Hearing("first")
    await hearing.hear(user(4.0), silence(1.0))
    hearing.buffer.configure(hearing.options)
    assert TurnStarted not in await hearing.hear(other(3.0), silence(1.0))


async def test_another_voice_is_judged_at_most_once_per_check(hearing: Hearing) -> None:
    await hearing.hear(other(6.0))
    assert len(hearing.encoder.heard) <= 6 * MIC_RATE_HZ / CHECKS[0].samples
    assert max(hearing.encoder.heard) <= 2 * MIC_RATE_HZ


async def test_turns_are_labelled_with_their_voices_when_asked_for() -> None:
    hearing = Hearing("any", labels=True)
    for voice in (user, other, user):
        await hearing.hear(voice(1.5), silence(1.0))
    await hearing.hear(silence(0.1))
    turns = [event.utterance.item_id for event in hearing.events if isinstance(event, TurnStopped)]
    found = [(event.item_id, event.speaker) for event in hearing.events if isinstance(event, SpeakerFound)]
    assert found == list(zip(turns, ("speaker_1", "speaker_2", "speaker_1"), strict=True))


async def test_a_turn_that_is_too_short_to_tell_has_no_label() -> None:
    hearing = Hearing("any", labels=True)
    await hearing.hear(user(0.3), silence(1.0))
    assert SpeakerFound not in map(type, hearing.events)
