"""Whether there is speech in a clip, and in what ears wrote."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import MIC_RATE_HZ
from engine.worker.asr.speech_gate import FRAME, is_loud, loudness, spoken

PROMPT = (
    "Please press one to mute or unmute yourself, two to lock or unlock the conference, three to eject the last user, "
    "four or six to decrease or increase the conference volume, seven or nine to decrease or increase yours."
)
QUIET = np.random.default_rng(1).normal(0, 20, MIC_RATE_HZ).astype(np.int16)


@pytest.mark.parametrize("pcm", [np.zeros(0, np.int16), np.zeros(5, np.int16), QUIET])
def test_silence_and_a_quiet_room_are_not_loud(pcm: np.ndarray) -> None:
    assert not is_loud(pcm)


@pytest.mark.parametrize("at", [0, 7_777, MIC_RATE_HZ - FRAME // 2, MIC_RATE_HZ - 100])
def test_one_word_anywhere_is_loud(at: int) -> None:
    pcm = QUIET.copy()
    pcm[at : at + FRAME] = 1000
    assert is_loud(pcm)


def test_loudness_is_that_of_whole_frames() -> None:
    assert loudness(np.array([3, -3, 4, 4, 9], np.int16), 2).tolist() == [3.0, 4.0]
    assert loudness(np.array([3], np.int16), 2).tolist() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Good  day.\n", "Good day."),
        ("[BLANK_AUDIO]", ""),
        ("(music) *laughs*", ""),
        ("...", ""),
        ("[music] Good day.", "[music] Good day."),
        ("你好。", "你好。"),
        ("You", ""),
        ("Thanks for watching!", ""),
        ("Subtitles by the Amara.org community", ""),
        ("Thank you.", "Thank you."),
        ("You know the answer.", "You know the answer."),
    ],
)
def test_noises_and_phrases_that_models_write_for_noise_are_no_words(text: str, words: str) -> None:
    assert spoken(text, 3.0) == words


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("Du-" * 30, 8.0),
        ("The first is the first is the first is the first is the first is the first", 8.0),
        ("1,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5", 8.0),
        ("To remove the pipes, to remove the pip", 0.75),
        ("We will see each other again when all of you have arrived here", 1.0),
        ("今天天气很好我们一起去公园散步然后回家吃饭看电视睡觉明天再来吧好不好你说呢我觉得可以", 0.7),
    ],
)
def test_a_loop_and_more_words_than_anybody_can_say_are_not_understood(text: str, length_s: float) -> None:
    assert not spoken(text, length_s)


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("Yes, please do it", 0.5),
        ("No, no, no, no.", 1.0),
        (PROMPT, 12.0),
        ("One, two, three, four, five, six, seven, eight, nine, ten.", 3.0),
        ("今天天气很好我们一起去公园散步", 2.0),
    ],
)
def test_fast_speech_and_lists_are_understood(text: str, length_s: float) -> None:
    assert spoken(text, length_s) == text
