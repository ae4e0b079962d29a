"""Speech over an answer: which of it is a turn, and when that is known."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import pytest

from app.realtime.conversation import Utterance
from app.realtime.input.backchannel import PATIENCE_MS, SHORT_MS, WORDS_MS, Backchannel
from app.realtime.input.backchannel_phrases import read
from app.realtime.input.turn_events import (
    IdleTimedOut,
    OverlapStarted,
    TurnCommitted,
    TurnDropped,
    TurnPaused,
    TurnStarted,
    TurnStopped,
)
from engine import MIC_RATE_HZ
from tests.app.realtime.input.test_audio_buffer import Listening
from tests.app.rig import silence, tone

LONGEST_MS = 1000


@pytest.mark.parametrize(
    "words",
    [
        "Mm-hmm.", "mhm", "Uh-huh.", "Yeah.", "yeah, yeah", "Okay.", "Oh, I see.", "Right!", "That's right.", "wow",
        "...", "Oh, that’s really interesting.", "Uh, okay.", "it really is", "Well, that sounds good.", "Oh my gosh!",
        "me too", "it is so good", "Ja, genau.", "Ah oui, exactement.", "Sí, claro.", "はい、そうですね。", "嗯,对。",
        "네.", "Ach so, verstehe.", "D'accord.", "Va bene.", "Pois é.", "Ну да, понятно.", "M. M. H. M.",
        "Mm-m-h.", "Mma.", "Hmmm.",
    ],
)  # fmt: skip
def test_listeners_words(words: str) -> None:
    assert read(words).is_backchannel


@pytest.mark.parametrize(
    "words",
    [
        "stop", "No.", "wait", "okay stop", "Yeah, but what about Rome?", "I see a cat", "what", "нет", "right now",
        "oh no", "that's enough", "that's wrong", "um", "yeah, um", "is that right side up", "go on to Rome",
        "that's it", "too fast", "ma", "mamma", "him", "Ja, aber warum?", "Attends.", "不对", "nein",
    ],
)  # fmt: skip
def test_words_that_want_an_answer(words: str) -> None:
    assert not read(words).is_backchannel


def test_many_listeners_words_before_another_one_are_read_in_their_length() -> None:
    """Were there two ways to read some of them, this would take for ever."""
    said = "so good oh my gosh that's so very really true i know i do too well well uh huh it is "
    assert read(30 * said).is_backchannel
    assert not read(30 * said + "stop").is_backchannel


@pytest.mark.parametrize("words", ["", "I", "that's", "so", "um", "Oh, that is really", "yeah yeah", "ist ja"])
def test_words_that_may_become_a_backchannel(words: str) -> None:
    assert read(words).may_become_one


@pytest.mark.parametrize("words", ["stop", "I have", "yeah but what", "that is what", "nope", "ja aber"])
def test_words_that_can_no_longer_become_one(words: str) -> None:
    assert not read(words).may_become_one


def heard(words: str, whole: bool | None = None, confident: bool = True) -> Utterance:
    utterance = Utterance(1000)
    utterance.understand(words, True, whole, confident)
    return utterance


@pytest.mark.parametrize(
    ("utterance", "lasted_ms", "turn"),
    [
        (heard("okay"), 900, False),
        (heard("stop"), 250, True),
        (heard("stop", whole=False), 250, False),
        (heard("stop", confident=False), 250, False),
        (heard("stop", confident=False), SHORT_MS + 10, True),
        (heard("", confident=False), SHORT_MS, False),
        (heard("", confident=False), SHORT_MS + 10, True),
        (heard(""), 900, False),
        (heard("okay", whole=False), 900, False),
        (heard("okay", confident=False), SHORT_MS, False),
        (heard("okay", confident=False), 900, True),
    ],
)
def test_words_decide_where_the_ears_are_sure_and_else_the_length(
    utterance: Utterance, lasted_ms: int, turn: bool
) -> None:
    assert Backchannel(1000, LONGEST_MS, 1000 + lasted_ms).is_turn(utterance, 1000 + lasted_ms) is turn


def test_ears_that_say_nothing_are_not_waited_for_for_long() -> None:
    utterance = Utterance(1000)
    assert Backchannel(0, LONGEST_MS, 300).is_turn(utterance, 300 + PATIENCE_MS - 1) is None
    assert Backchannel(0, LONGEST_MS, 300).is_turn(utterance, 300 + PATIENCE_MS) is False
    assert Backchannel(0, LONGEST_MS, 700).is_turn(utterance, 700 + PATIENCE_MS) is True


def test_speech_that_goes_on_is_a_turn() -> None:
    utterance = Utterance(1000)
    assert Backchannel(0, LONGEST_MS).is_turn(utterance, LONGEST_MS) is None
    assert Backchannel(0, LONGEST_MS).is_turn(utterance, LONGEST_MS + 1) is True


@pytest.mark.parametrize(
    ("words", "confident", "spoken_ms", "turn"),
    [
        ("What time", True, WORDS_MS, True),
        ("What time", True, WORDS_MS - 1, None),
        ("What time", False, WORDS_MS, None),
        ("Oh, that's", True, WORDS_MS, None),
        ("", True, WORDS_MS, None),
    ],
)
def test_interim_words_decide_before_the_user_pauses(
    words: str, confident: bool, spoken_ms: int, turn: bool | None
) -> None:
    utterance = Utterance(1000)
    utterance.understand(words, False, None, confident)
    assert Backchannel(0, LONGEST_MS).is_turn(utterance, spoken_ms) is turn


class TalkedOver(Listening):
    """A buffer whose listener hears an answer."""

    def __init__(self, **detection: Any) -> None:
        super().__init__(**(detection or {"type": "server_vad"}))
        self.buffer.voice.playing(np.zeros(24_000, np.float32))

    @property
    def kinds(self) -> list[type]:
        """The events that decide something."""
        return [type(event) for event in self.events if not type(event).__name__.startswith(("TurnP", "TurnR"))]

    def understand(self, words: str) -> None:
        (event,) = [event for event in self.events if isinstance(event, OverlapStarted)]
        event.utterance.understand(words, True, None)


async def test_a_listeners_word_is_no_turn() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.6))
    assert listening.kinds == [OverlapStarted]
    await listening.append(silence(0.2))
    listening.understand("Mm-hmm.")
    await listening.append(silence(0.1))
    assert listening.kinds == [OverlapStarted, TurnDropped]
    await listening.append(silence(2))
    assert listening.kinds == [OverlapStarted, TurnDropped]


async def test_a_short_word_that_wants_something_is_a_turn() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.3), silence(0.2))
    listening.understand("Stop!")
    await listening.append(silence(0.1))
    assert listening.kinds == [OverlapStarted, TurnStarted]
    await listening.append(silence(1))
    assert listening.kinds == [OverlapStarted, TurnStarted, TurnStopped]
    started = next(event for event in listening.events if isinstance(event, TurnStarted))
    stopped = next(event for event in listening.events if isinstance(event, TurnStopped))
    assert started.utterance is stopped.utterance
    assert stopped.utterance.seconds > 0.5, "all of it, from its beginning"


async def test_speech_that_goes_on_is_a_turn_before_it_ends() -> None:
    listening = TalkedOver()
    await listening.append(tone(LONGEST_MS / 1000 + 0.2))
    assert listening.kinds == [OverlapStarted, TurnStarted]


async def test_a_second_word_behind_a_pause_counts_from_the_first() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.25), silence(0.35), tone(0.25))
    assert listening.kinds == [OverlapStarted]
    await listening.append(silence(0.6))
    assert listening.kinds == [OverlapStarted, TurnStarted, TurnStopped]


async def test_an_interruption_is_committed_from_its_first_sample() -> None:
    listening = TalkedOver()
    await listening.append(silence(0.5), tone(LONGEST_MS / 1000 + 0.2), silence(0.7))
    stopped = next(event for event in listening.events if isinstance(event, TurnStopped))
    loud = np.flatnonzero(np.abs(stopped.utterance.pcm) > 1000)
    assert loud[0] == pytest.approx(16 * 300, abs=16 * 40), "300 ms of padding, and then all of the speech"
    assert (loud[-1] - loud[0]) / 16 == pytest.approx(LONGEST_MS + 200, abs=40)


async def test_a_backchannel_over_sound_that_the_client_still_plays_is_no_turn() -> None:
    """The response has ended, but a WebSocket's client plays the rest of it."""
    listening = TalkedOver()
    listening.buffer.voice.response_ended(left_s=1.5)
    await listening.append(tone(0.4), silence(0.2))
    listening.understand("Mm-hmm.")
    await listening.append(silence(0.1))
    assert listening.kinds == [OverlapStarted, TurnDropped]
    await listening.append(silence(1), tone(0.1))
    assert listening.kinds == [OverlapStarted, TurnDropped, TurnStarted], "nothing plays any more"


@pytest.mark.parametrize("pauses", [False, True])
async def test_idle_time_begins_again_after_a_backchannel_over_the_rest_of_an_answer(pauses: bool) -> None:
    """``pauses``: whether the client pauses its playback while the user speaks."""
    listening = TalkedOver(type="server_vad", idle_timeout_ms=1000)
    voice = listening.buffer.voice
    voice.response_ended(left_s=1.5)
    await listening.append(tone(0.4))
    if pauses:
        voice.playback.paused()
    await listening.append(silence(0.2))
    listening.understand("Mm-hmm.")
    await listening.append(silence(0.1))
    if pauses:
        voice.playback.resumed()
    left_s = 1.5 - 0.4 - (0.0 if pauses else 0.3)
    await listening.append(silence(left_s + 0.9))
    assert listening.kinds == [OverlapStarted, TurnDropped]
    await listening.append(silence(0.2))
    assert listening.kinds == [OverlapStarted, TurnDropped, IdleTimedOut]


async def test_no_idle_time_follows_speech_over_an_answer_that_the_client_clears() -> None:
    listening = TalkedOver(type="server_vad", idle_timeout_ms=1000)
    listening.buffer.voice.response_ended(left_s=1.5)
    await listening.append(tone(0.4))
    listening.buffer.clear()
    await listening.append(silence(4))
    assert listening.kinds == [OverlapStarted, TurnDropped]


async def test_a_word_that_outlasts_the_answer_is_a_turn() -> None:
    """It may be the answer to a question with which the response ended."""
    listening = TalkedOver()
    listening.buffer.voice.response_ended(left_s=0.4)
    await listening.append(tone(0.5))
    assert listening.kinds == [OverlapStarted, TurnStarted]


@pytest.mark.parametrize(
    "detection",
    [{"backchannel_ms": 0}, {"interrupt_response": False}, {"create_response": False}],
)
async def test_any_speech_is_a_turn_at_once_where_nothing_can_be_held(detection: dict[str, Any]) -> None:
    listening = TalkedOver(type="server_vad", **detection)
    await listening.append(tone(0.15))
    assert listening.kinds == [TurnStarted]


async def test_held_speech_that_fills_the_input_buffer_is_a_turn() -> None:
    """Where ``backchannel_ms`` is longer than ``limits.audio_s``."""
    listening = TalkedOver(type="server_vad", backchannel_ms=60_000)
    listening.buffer._turn.limit = MIC_RATE_HZ
    await listening.append(tone(1.5))
    assert listening.kinds[:3] == [OverlapStarted, TurnStarted, TurnStopped]


async def test_a_session_that_has_ended_holds_no_speech() -> None:
    listening = TalkedOver()
    speech: list[ref[Utterance]] = []
    for _ in range(2):  # a turn that got no answer, and speech over one
        await listening.append(tone(1.2), silence(0.7))
        speech += [ref(event.utterance) for event in listening.events if isinstance(event, TurnStopped)]
        listening.events.clear()
    assert speech[-1]() is not None
    listening.buffer.forget()
    assert [one() for one in speech] == [None, None]


@pytest.mark.parametrize("seconds", [0.1, 0.15])
async def test_a_sound_as_short_as_a_cough_is_ignored(seconds: float) -> None:
    listening = TalkedOver()
    await listening.append(tone(seconds), silence(1))
    assert not listening.kinds


async def test_backchannel_ms_bounds_what_is_held() -> None:
    listening = TalkedOver(type="server_vad", backchannel_ms=400)
    await listening.append(tone(0.35))
    assert listening.kinds == [OverlapStarted]
    await listening.append(tone(0.15))
    assert listening.kinds == [OverlapStarted, TurnStarted]


async def test_where_ears_say_nothing_the_length_decides_once_it_is_over() -> None:
    """Also where the turn's silence is shorter than the time that ears are given."""
    for seconds, kinds in (
        (0.25, [OverlapStarted, TurnDropped]),
        (0.8, [OverlapStarted, TurnStarted, TurnStopped]),
    ):
        listening = TalkedOver(type="server_vad", silence_duration_ms=200)
        await listening.append(tone(seconds), silence(0.3))
        assert listening.kinds == kinds


async def test_a_turn_without_a_pause_before_its_end_is_judged_at_its_end() -> None:
    """As where no answer is begun in pauses."""
    for seconds, kinds in ((0.25, [OverlapStarted, TurnDropped]), (0.8, [OverlapStarted, TurnStarted, TurnStopped])):
        listening = TalkedOver()
        listening.buffer.speculation.after_ms = 0
        await listening.append(tone(seconds), silence(0.7))
        assert listening.kinds == kinds
        assert not any(isinstance(event, TurnPaused) for event in listening.events)


async def test_without_an_answer_everything_is_a_turn_at_once() -> None:
    listening = TalkedOver()
    listening.buffer.voice.playback.stopped()
    await listening.append(tone(0.2))
    assert listening.kinds == [TurnStarted]


async def test_a_client_that_commits_makes_it_a_turn() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.4))
    listening.buffer.commit()
    assert listening.kinds == [OverlapStarted, TurnStarted, TurnCommitted]


async def test_a_client_that_clears_forgets_it() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.4))
    listening.buffer.clear()
    await listening.append(tone(0.4))
    assert listening.kinds == [OverlapStarted, TurnDropped, OverlapStarted]


async def test_what_was_cleared_is_not_judged_with_what_comes_next() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.4))
    listening.buffer.clear()
    listening.buffer.voice.playback.stopped()
    await listening.append(tone(LONGEST_MS / 1000 + 0.2))
    assert listening.kinds == [OverlapStarted, TurnDropped, TurnStarted]


async def test_what_is_said_right_behind_a_listeners_word_is_judged_by_itself() -> None:
    listening = TalkedOver()
    await listening.append(tone(0.4), silence(0.2))
    listening.understand("Yeah.")
    await listening.append(silence(0.1), tone(0.4))
    assert listening.kinds == [OverlapStarted, TurnDropped, OverlapStarted]
