"""How well turns were ended: what counts as an early cut, a false interruption, a barge-in, and dead air."""

from __future__ import annotations

import pytest

from app.realtime.conversation import Utterance
from app.realtime.input.turn_outcomes import Outcome, TurnOutcomes
from app.realtime.input.wait_tuner import WaitTuner
from tests.app.realtime.test_session import talking
from tests.app.rig import silence, tone

WHOLE, OPEN = "What time is it?", "tell me about the"


def said(words: str, silence_ms: float = 500) -> Utterance:
    utterance = Utterance(limit_samples=16_000)
    utterance.understand(words, final=True, whole=None)
    utterance.silence_ms = silence_ms
    return utterance


def speak_over(first: str, words: str, played_s: float | None) -> dict[Outcome, int]:
    """A turn, and speech after the answer has played for ``played_s``; return the counts."""
    outcomes, second = TurnOutcomes(lambda kind: None), said(words)
    turn = said(first)
    outcomes.turn_began(turn, 0.0)
    outcomes.turn_ended(turn, 2.0, 500, answered=True)
    if played_s is not None:
        outcomes.answer_sounds(2.5)
    outcomes.turn_began(second, 2.4 if played_s is None else 2.5 + played_s)
    outcomes.turn_ended(second, 6.0, 500, answered=True)
    return {kind: count for kind, count in outcomes.counts.items() if count}


@pytest.mark.parametrize(
    ("first", "words", "played_s", "kind"),
    [
        (OPEN, "weather in Oslo", None, "early_cuts"),
        (WHOLE, "in Oslo", None, "early_cuts"),
        (WHOLE, "in Oslo", 0.2, "early_cuts"),
        (OPEN, "weather in Oslo", 1.1, "early_cuts"),
        (OPEN, "no, stop", 1.5, "barge_ins"),
        (WHOLE, "no, stop", 0.8, "barge_ins"),
        (WHOLE, "", 0.8, "false_interruptions"),
    ],
)
def test_speech_over_an_answer(first: str, words: str, played_s: float | None, kind: Outcome) -> None:
    counts = speak_over(first, words, played_s)
    expected: dict[Outcome, int] = {"turns": 2 if kind == "barge_ins" else 1, kind: 1}
    assert counts == expected


def test_noise_before_the_answer_counts_as_nothing() -> None:
    assert speak_over(WHOLE, "", None) == {"turns": 1}


def test_speech_after_the_answer_is_a_turn() -> None:
    outcomes = TurnOutcomes(lambda kind: None)
    outcomes.turn_ended(said(OPEN), 2.0, 500, answered=True)
    outcomes.answer_sounds(2.5)
    outcomes.answer_ended()
    outcomes.turn_began(said("hello"), 9.0)
    outcomes.settle()
    assert outcomes.counts["turns"] == 1
    assert outcomes.counts["early_cuts"] == outcomes.counts["barge_ins"] == 0


def test_a_backchannel_over_sound_that_the_client_still_plays_changes_no_count() -> None:
    """The response has ended, but a WebSocket's client plays the rest of it."""
    outcomes = TurnOutcomes(lambda kind: None)
    outcomes.turn_ended(said(WHOLE), 2.0, 500, answered=True)
    outcomes.answer_sounds(2.5)
    outcomes.answer_ended()
    outcomes.turn_began(said("mm-hm"), 5.0, plays=True)
    outcomes.turn_dropped()
    assert not any(outcomes.counts.values())
    outcomes.turn_began(said("and tomorrow?"), 30.0)
    outcomes.settle()
    assert {kind: count for kind, count in outcomes.counts.items() if count} == {"turns": 1}


@pytest.mark.parametrize(("sound_s", "dead"), [(3.4, 0), (3.6, 1)])
def test_dead_air_is_two_seconds_after_the_last_word_without_an_answer(sound_s: float, dead: int) -> None:
    outcomes = TurnOutcomes(lambda kind: None)
    outcomes.turn_ended(said(WHOLE, silence_ms=500), 2.0, 500, answered=True)
    outcomes.answer_sounds(sound_s)
    outcomes.answer_sounds(sound_s + 5)
    assert outcomes.counts["dead_air"] == dead


def test_without_an_answer_silence_is_no_dead_air() -> None:
    outcomes = TurnOutcomes(lambda kind: None)
    outcomes.turn_ended(said(WHOLE), 2.0, 500, answered=False)
    outcomes.turn_began(said("hello"), 9.0)
    assert outcomes.counts["dead_air"] == 0


def test_an_answer_without_a_spoken_turn_is_no_dead_air() -> None:
    """Such as a greeting, or the answer to a typed message."""
    outcomes = TurnOutcomes(lambda kind: None)
    outcomes.answer_began()
    outcomes.answer_sounds(5_000.0)
    assert outcomes.counts["dead_air"] == 0


def test_a_cut_counts_relative_to_the_wait_of_the_turn_that_was_cut() -> None:
    """Also if its words are known only after the next turn has ended by another wait."""
    factors: list[float] = []
    for next_wait_ms in (400, 4_000):
        outcomes = TurnOutcomes(lambda kind: None)
        outcomes.tuner = WaitTuner(0.02)
        outcomes.turn_ended(said(OPEN, silence_ms=400), 2.0, 400, answered=True)
        unheard = Utterance(limit_samples=16_000)
        outcomes.turn_began(unheard, 2.4)
        outcomes.turn_ended(unheard, 4.0, next_wait_ms, answered=True)
        unheard.understand("weather in Oslo", final=True, whole=None)
        outcomes.settle()
        factors.append(outcomes.tuner.factor)
    assert factors[0] == factors[1]


def test_a_cut_lengthens_the_wait_and_a_barge_in_does_not() -> None:
    factors: list[float] = []
    for words in ("weather in Oslo", ""):
        outcomes = TurnOutcomes(lambda kind: None)
        outcomes.tuner = WaitTuner(0.02)
        outcomes.turn_ended(said(OPEN, silence_ms=200), 2.0, 200, answered=True)
        outcomes.answer_sounds(2.1)
        outcomes.turn_began(said(words), 3.0)
        outcomes.settle()
        factors.append(outcomes.tuner.factor)
    assert factors[0] > factors[1]
    assert outcomes.report == {**outcomes.counts, "wait_factor": 1.0}


async def test_a_session_counts_a_turn_that_the_user_continues_before_the_answer_was_heard() -> None:
    async with talking() as talk:
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.6))
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.6))
        value = talk.metrics.registry.get_sample_value
        counts = {what: value("parley_turns_total", {"what": what}) for what in ("turns", "early_cuts", "dead_air")}
    assert counts == {"turns": 1, "early_cuts": 1, "dead_air": None}
