"""Whether there is speech in a clip, and in what ears wrote."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import MIC_RATE_HZ
from engine.worker.asr.speech_gate import FRAME, is_loud, loudness, spoken

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
    ],
)
def test_noises_that_ears_name_are_no_words(text: str, words: str) -> None:
    assert spoken(text) == words
