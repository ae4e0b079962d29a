"""When a turn is over: what the words and the voice say, and what that is worth on a scripted set of pauses."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest

from app.realtime.input.endpointing import WAITS_MS, SentenceEndOfTurn, completeness, prosody_fall
from app.realtime.input.fused_end_of_turn import bound_ms
from app.realtime.ports import EndpointingContext

JUDGE = SentenceEndOfTurn()
FIXED_MS = 500
"""What server_vad waits, whatever was said."""

# What had been understood at a pause, how the voice ended, how long the user then was silent; None: he had finished.
PAUSES: list[tuple[str, float, int | None]] = [
    ("what time is it", 0.8, None),
    ("what is the", -0.6, 900),
    ("what is the date today", 0.7, None),
    ("spell", -0.5, 800),
    ("spell banana", 0.5, None),
    ("please repeat after me", -0.4, 700),
    ("please repeat after me good morning", 0.6, None),
    ("what is twelve plus", -0.8, 1100),
    ("what is twelve plus thirty", 0.9, None),
    ("i would like to", -0.7, 1300),
    ("um", -0.5, 1500),
    ("hello", 0.4, None),
    ("my number is five five five", -0.5, 650),
    ("could you tell me", 0.0, 600),
    ("could you tell me who you are", 0.8, None),
    ("because", -0.6, 1200),
    ("what can you do", 0.5, None),
    ("the weather is nice and", -0.7, 900),
    ("The weather is nice.", 0.6, None),
    ("how do you spell", -0.6, 750),
    ("good morning", 0.5, None),
    ("i think that", -0.2, 850),
    ("is it twenty minus", -0.3, 700),
    ("thank you", 0.6, None),
    ("", 0.0, 450),
    ("", 0.7, None),
]


def figures(wait_ms: Any) -> tuple[int, float]:
    """How many who had not finished were cut off, and the median wait of those who had."""
    cut = sum(wait_ms(words, falling) <= pause for words, falling, pause in PAUSES if pause is not None)
    return cut, median(wait_ms(words, falling) for words, falling, pause in PAUSES if pause is None)


def judged(eagerness: Any) -> tuple[int, float]:
    return figures(lambda words, falling: JUDGE.silence_ms(EndpointingContext(words, falling), eagerness))


def test_fewer_are_cut_off_and_those_who_finished_wait_less() -> None:
    fixed = figures(lambda words, falling: FIXED_MS)
    low, medium, high = judged("low"), judged("medium"), judged("high")
    print(f"of 14 pauses within a turn cut off, median wait in ms: {fixed=} {high=} {medium=} {low=}")
    assert fixed[0] == 13
    assert low[0] <= medium[0] <= high[0] <= 4
    assert medium[0] <= 2
    assert high[1] < medium[1] < fixed[1]


def test_without_words_and_voice_the_judge_is_worth_no_more_than_a_fixed_silence() -> None:
    """The control: what it gains comes from what it reads."""
    blind = figures(lambda words, falling: JUDGE.silence_ms(EndpointingContext(), "medium"))
    assert blind[0] >= 10


@pytest.mark.parametrize("eagerness", ["low", "medium", "high"])
def test_ears_that_know_what_can_be_asked_are_believed(eagerness: Any) -> None:
    """Whatever the words look like and the voice does: "tell me the time please" is over, "testing one" is not."""
    short, middle, longest = WAITS_MS[eagerness]
    assert JUDGE.silence_ms(EndpointingContext("ten from twelve please", -1.0, whole=True), eagerness) == short
    assert 1.5 * middle < JUDGE.silence_ms(EndpointingContext("testing one", 1.0, whole=False), eagerness) < longest / 2
    assert JUDGE.silence_ms(EndpointingContext("testing one and", 1.0, whole=False), eagerness) == longest


@pytest.mark.parametrize("eagerness", ["low", "medium", "high"])
def test_one_word_may_be_the_first_of_many_although_the_ears_know_it_as_a_request(eagerness: Any) -> None:
    short, middle, longest = WAITS_MS[eagerness]
    assert short < JUDGE.silence_ms(EndpointingContext("stop", whole=True), eagerness) < middle
    assert JUDGE.silence_ms(EndpointingContext("again", whole=True), eagerness) == middle
    assert middle < JUDGE.silence_ms(EndpointingContext("what", whole=True), eagerness) < longest / 2
    assert middle < JUDGE.silence_ms(EndpointingContext("please", whole=True), eagerness) < longest / 2


def test_a_voice_that_sinks_ends_nothing_while_the_ears_are_about_to_tell() -> None:
    """On a busy machine words come late: what is cut off by then can't be told from what is whole."""
    _, middle, _ = WAITS_MS["medium"]
    assert JUDGE.silence_ms(EndpointingContext(falling=1.0), "medium") < 0.8 * middle
    assert JUDGE.silence_ms(EndpointingContext(falling=1.0, listening=True), "medium") == middle
    assert JUDGE.silence_ms(EndpointingContext(falling=-1.0, listening=True), "medium") > middle


@pytest.mark.parametrize("eagerness", ["low", "medium", "high"])
def test_a_wait_is_never_longer_than_the_protocol_s(eagerness: Any) -> None:
    short, middle, longest = WAITS_MS[eagerness]
    assert longest == {"low": 8000, "medium": 4000, "high": 2000}[eagerness]
    assert JUDGE.silence_ms(EndpointingContext("and", -1.0), eagerness) == longest
    assert JUDGE.silence_ms(EndpointingContext("What time is it?", 1.0), eagerness) == short
    assert JUDGE.silence_ms(EndpointingContext(), eagerness) == middle


@pytest.mark.parametrize(
    ("words", "sign"),
    [
        ("What time is it?", 1),
        ("what time is it", 1),
        ("thank you", 1),
        ("I like it because", -1),
        ("well um", -1),
        ("one two three", -1),
        ("what can you do", 1),
        ("where do you come from", 1),
        ("what is the date of", -1),
        ("0.5", 0),
        ("", 0),
        ("banana", 0),
        ("what", -1),
        ("what?", 1),
        ("are you", 0),
        ("it is five, ", -1),
    ],
)
def test_words_tell(words: str, sign: int) -> None:
    assert np.sign(completeness(words)) == sign


@pytest.mark.parametrize(
    ("words", "languages", "open_"),
    [
        ("I would like, um.", "en de", True),
        ("I would like uh", "en de fr", True),
        ("I would like, er.", "en", True),
        ("Where is he? Um...", "en", True),
        ("You are new here, eh?", "en", False),
        ("Ich möchte, äh.", "de", True),
        ("Ich möchte, ähm.", "en de", True),
        ("Da ist er.", "de", False),
        ("Da ist er.", "en de", False),
        ("Je voudrais, euh.", "fr", True),
        ("Je voudrais, hum.", "fr-CA", True),
        ("Quisiera, este.", "es", True),
        ("Quisiera este.", "es it", False),
        ("Vorrei, ehm.", "it", True),
        ("Ik wil graag, eh.", "nl", True),
        ("Я хочу, эм.", "ru", True),
        ("あしたの、えっと。", "ja", True),
        ("我想要，呃。", "zh", True),
        ("내일, 음.", "ko", True),
        ("여기 있어.", "ko", False),
    ],
)
def test_a_filler_in_a_language_of_the_ears_means_that_the_user_goes_on(
    words: str, languages: str, open_: bool
) -> None:
    moment = EndpointingContext(words, heard=True, sound=0.5, languages=tuple(languages.split()))
    longest = WAITS_MS["medium"][2]
    assert (JUDGE.silence_ms(moment, "medium") == longest) is open_
    assert (bound_ms(moment, "medium") == longest) is open_


@pytest.mark.parametrize(
    "words",
    ["Yes, please.", "What is this?", "What is 7+5?", "Who are they?", "Is it 9-5?", "7 + 5.", "I think so.", "Is it?"],
)
def test_punctuation_ends_the_turn_although_the_last_word_often_goes_on(words: str) -> None:
    short, middle, _ = WAITS_MS["medium"]
    assert short <= JUDGE.silence_ms(EndpointingContext(words), "medium") < middle


UNFINISHED = (
    "Yes, please",
    "What is this",
    "what is 7+",
    "Who are they...",
    "Is it,",
    "Well…",
    "I went to the.",
    "Um.",
    "And?",
    "My number is 5 5 5.",
)


@pytest.mark.parametrize("words", UNFINISHED)
def test_an_unfinished_sentence_is_waited_for_whatever_mark_follows(words: str) -> None:
    assert JUDGE.silence_ms(EndpointingContext(words), "medium") > 2_000


def test_a_full_stop_after_a_word_that_often_goes_on_is_weaker_evidence_than_a_question_mark() -> None:
    """Whisper writes full stops, but hardly ever question marks, after clips that stop within a sentence."""
    full_stop, question = (EndpointingContext(f"I asked who they are{mark}") for mark in ".?")
    fixed_ms = 1.2 * WAITS_MS["medium"][1]  # a voice that is held outweighs the full stop
    assert JUDGE.silence_ms(full_stop, "medium") > 1.5 * JUDGE.silence_ms(question, "medium")
    assert JUDGE.silence_ms(EndpointingContext(full_stop.words, falling=-1.0), "medium") > fixed_ms


@pytest.mark.parametrize("words", ["Сколько времени?", "今何時ですか？", "«Bonjour, Marie.»"])
def test_punctuation_counts_in_every_script(words: str) -> None:
    assert completeness(words) == 1
    assert completeness(words.rstrip("?？.»")) < 1


@pytest.mark.parametrize(
    ("words", "language", "complete"),
    [
        ("Schalte bitte das Licht an.", "de", True),  # "an" never ends an English sentence
        ("Combien gagnez-vous par an ?", "fr-CA", True),
        ("Ouvre-la.", "fr", True),
        ("Ich fahre morgen zum.", "de", False),
        ("Ouvre la.", "fr", False),
        ("Vorrei prenotare un tavolo per.", "it", False),
        ("Quiero una pizza con.", "es", False),
        ("Я хочу заказать пиццу с.", "ru", False),
        ("Please turn the light an.", "en", False),
    ],
)
def test_words_that_never_end_a_sentence_are_those_of_its_language(words: str, language: str, complete: bool) -> None:
    assert completeness(words, (language,)) == (1 if complete else -1)


def test_an_asr_of_several_languages_has_the_english_words() -> None:
    assert completeness("Please turn on the", ("de", "en")) == completeness("Please turn on the") == -1
    assert completeness("Ich fahre morgen zum.", ("de", "en")) == 1


def voice(hz: Any, level: Any) -> Any:
    """Half a second of a voice with that pitch and loudness, int16 at 16 kHz."""
    at = np.linspace(0, 1, 8_000)
    phase = np.cumsum(np.interp(at, [0, 1], hz) / 16_000)
    pulses = sum(np.sin(2 * np.pi * k * phase) / k for k in range(1, 8))
    return (6_000 * np.interp(at, [0, 1], level) * pulses).astype(np.int16)


def test_a_voice_that_sinks_has_ended_and_one_that_is_held_goes_on() -> None:
    sunk, held = prosody_fall(voice([180, 100], [1, 0.03])), prosody_fall(voice([150, 152], [1, 0.95]))
    assert sunk > 0.5
    assert held < -0.3


def test_too_little_voice_tells_nothing() -> None:
    assert prosody_fall(np.zeros(100, np.int16)) == 0.0
    assert -1 <= prosody_fall(np.zeros(8_000, np.int16)) <= 1
