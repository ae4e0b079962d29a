"""The sound of clauses at the speaker's rate: as long as it was, the same in any pieces, with marks where words end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.audio.resampler import resample
from engine.chunk import Audio
from engine.core import SPEAKER_RATE_HZ
from engine.worker.tts.clause_audio import ClauseSound
from engine.worker.tts.clauses import Clause

RATES_HZ = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


def clause(text: str, start: int = 0) -> Clause:
    return Clause(text, tuple(range(start, start + len(text))))


def wave(samples: int) -> np.ndarray:
    return np.sin(np.arange(samples) / 9).astype(np.float32) / 2


def said(sound: ClauseSound, what: Clause, *pieces: tuple[np.ndarray, float]) -> list[Audio]:
    sound.begin(what)
    return [audio for piece, share in pieces for audio in sound.push(piece, share)] + [*sound.end()]


def whole(found: list[Audio]) -> np.ndarray:
    return np.concatenate([audio.wave for audio in found])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RATES_HZ), st.lists(st.integers(100, 30_000), min_size=1, max_size=5))
def test_a_clause_is_the_same_sound_in_any_pieces_and_its_marks_rise_to_its_end(rate_hz: int, sizes: list[int]) -> None:
    full = wave(sum(sizes))
    ends = np.cumsum(sizes)
    pieces = [(full[end - size : end], float(end / ends[-1])) for size, end in zip(sizes, ends, strict=True)]
    found = said(ClauseSound(rate_hz), clause("this is a test of it. ", 10), *pieces)
    assert np.array_equal(whole(found), resample(full, rate_hz, SPEAKER_RATE_HZ))
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert [characters for _, characters in marks] == [14, 17, 19, 24, 27, 32]
    assert marks[-1][0] == len(whole(found)), "the last word ends with the sound, to the sample"
    at = 0
    for audio in found:
        assert all(sample <= at + len(audio.wave) for sample, _ in audio.marks), "no mark comes before its sound"
        at += len(audio.wave)


def test_marks_of_a_clause_stand_behind_the_clauses_before() -> None:
    sound = ClauseSound(SPEAKER_RATE_HZ)
    said(sound, clause("one "), (wave(2400), 1.0))
    (second,) = said(sound, clause("two six", 4), (wave(2400), 1.0))
    assert second.marks == ((2400 + round(2400 * 3 / 7), 7), (4800, 11))


def test_a_clause_that_makes_no_sound_counts_as_said_with_the_next() -> None:
    sound = ClauseSound(SPEAKER_RATE_HZ)
    assert said(sound, clause("😀 ")) == []
    (audio,) = said(sound, clause("yes", 2), (wave(100), 1.0))
    assert audio.marks == ((0, 2), (100, 5))


def test_an_answer_that_goes_on_elsewhere_counts_from_what_was_given() -> None:
    (audio,) = said(ClauseSound(SPEAKER_RATE_HZ, samples=5000), clause("yes", 20), (wave(100), 1.0))
    assert audio.marks == ((5100, 23),)


def test_an_answer_ends_where_it_is_as_long_as_it_may_be() -> None:
    sound = ClauseSound(16_000, most=1000)
    assert not sound.full
    assert len(whole(said(sound, clause("yes"), (wave(8000), 1.0)))) == 1000
    assert sound.full
    assert said(sound, clause("no", 3), (wave(8000), 1.0)) == []


@pytest.mark.parametrize("rate_hz", [16_000, SPEAKER_RATE_HZ])
def test_sound_that_is_none_is_silence_and_too_loud_sound_is_cut(rate_hz: int) -> None:
    broken = np.array([np.nan, np.inf, -np.inf, 7.0] * 100, np.float32)
    sound = whole(said(ClauseSound(rate_hz), clause("a"), (broken, 1.0)))
    assert np.isfinite(sound).all()
    assert np.abs(sound).max() <= 1
