"""What of a turn the ears of the built-in model search: the voice, and little around it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import MIC_RATE_HZ, Pcm
from engine.worker.models.nano.utterance import (
    AFTER,
    AHEAD,
    BEFORE,
    FRAME,
    GAP,
    GAP_AFTER,
    LASTS,
    LONGEST,
    NanoUtterance,
)

MARGIN = (BEFORE + AFTER + 2 * LASTS) * FRAME


def said(*parts: Pcm) -> NanoUtterance:
    utterance = NanoUtterance()
    for part in parts:
        utterance.push(part)
    utterance.end()
    return utterance


def voice(seconds: float, rms: float = 3000) -> Pcm:
    """Loud and soft four times a second, as syllables are."""
    count = round(seconds * MIC_RATE_HZ)
    swell = 1.2 + np.sin(2 * np.pi * 4 * np.arange(count) / MIC_RATE_HZ)
    return noise(seconds, rms, swell)


def noise(seconds: float, rms: float, swell: Sequence[float] | np.ndarray | float = 1.0) -> Pcm:
    count = round(seconds * MIC_RATE_HZ)
    return np.clip(np.random.default_rng(count).normal(0, rms, count) * swell, -32768, 32767).astype(np.int16)


def quiet(seconds: float) -> Pcm:
    return noise(seconds, 3)


def test_what_is_kept_does_not_depend_on_how_much_silence_was_around_it() -> None:
    alone = said(quiet(1), voice(1), quiet(1))
    assert MIC_RATE_HZ < len(alone) <= MIC_RATE_HZ + MARGIN
    long = said(quiet(60), voice(1), quiet(60))
    assert len(long) == len(alone)
    assert np.abs(long.pcm().astype(int) - alone.pcm()).max() < 60  # the same voice, in another draw of the room
    assert (long.basis, long.voice_end) == (alone.basis, alone.voice_end)


def test_a_voice_that_is_there_at_once_has_silence_ahead_of_it() -> None:
    at_once = said(voice(1), quiet(1)).pcm()
    ahead, first = at_once[: AHEAD * FRAME], at_once[AHEAD * FRAME : (AHEAD + 3) * FRAME]
    assert np.abs(ahead).max() < 30
    assert np.abs(first).max() > 300


def test_of_a_long_pause_a_little_is_kept() -> None:
    assert len(said(voice(1), quiet(20), voice(1))) <= 2.4 * MIC_RATE_HZ + AFTER * FRAME
    short = said(voice(1), quiet(0.3), voice(1))
    assert len(short) == round(2.3 * MIC_RATE_HZ) + AHEAD * FRAME


def level(pcm: Pcm) -> float:
    return float(np.sqrt(np.square(pcm.astype(float)).mean()))


@pytest.mark.parametrize("rms", [60, 200])
def test_what_is_left_of_a_noisy_pause_is_as_quiet_as_it_is_beneath_the_words(rms: float) -> None:
    """A room's noise, a hum or a breath was heard as a part of a word."""
    kept = said(quiet(1), voice(1), noise(4, rms), voice(1), quiet(1)).pcm()
    silent = said(quiet(1), voice(1), quiet(4), voice(1), quiet(1)).pcm()
    assert len(kept) == len(silent)
    pause = (BEFORE + round(MIC_RATE_HZ / FRAME)) * FRAME + FRAME // 2  # the first of its frames fades
    assert level(kept[pause : pause + (2 * GAP - 1) * FRAME]) < rms / 3
    assert level(silent[pause : pause + (2 * GAP - 1) * FRAME]) < 20


def test_a_soft_end_of_a_word_ahead_of_a_noisy_pause_is_kept() -> None:
    soft = noise(GAP_AFTER * FRAME / MIC_RATE_HZ, 500)
    kept = said(quiet(1), voice(1), soft, noise(4, 100), voice(1), quiet(1)).pcm()
    begin = BEFORE * FRAME + MIC_RATE_HZ
    assert np.abs(kept[begin : begin + len(soft) - FRAME].astype(int) - soft[:-FRAME]).max() < 60


def test_noise_that_lies_beneath_the_words_too_is_not_turned_down_in_a_pause() -> None:
    """The ears learn from it what to take from the words."""
    spoken = np.concatenate([quiet(1), voice(1), quiet(4), voice(1), quiet(1)]) + noise(8, 200)
    kept = said(spoken).pcm()[AHEAD * FRAME :]
    frames = kept[: len(kept) // FRAME * FRAME].reshape(-1, FRAME)
    assert min(map(level, frames)) > 120


def test_a_cough_ahead_takes_nothing_of_what_is_kept_ahead_of_a_voice() -> None:
    alone, coughed = said(quiet(1), voice(1)), said(quiet(1), noise(0.2, 100), quiet(2), voice(1))
    assert len(coughed) == len(alone)
    assert np.abs(coughed.pcm()[BEFORE * FRAME :].astype(int) - alone.pcm()[BEFORE * FRAME :]).max() < 60


def test_a_little_noise_a_long_pause_ahead_of_a_voice_is_left_out() -> None:
    """Too little to be worth another search, it was the first word of a request that was not understood."""
    kept = said(noise(0.1, 200), quiet(2), voice(1), quiet(1)).pcm()
    levels = [level(frame) for frame in kept[: len(kept) // FRAME * FRAME].reshape(-1, FRAME)]
    begin = next(n for n, loud in enumerate(levels) if loud > 1000)
    assert begin >= AHEAD, "silence is left"
    assert max(levels[:begin]) < 30


@given(st.lists(st.tuples(st.sampled_from([0, 30, 100, 400, 1500, 6000]), st.integers(1, 45)), max_size=12))
@settings(deadline=None, max_examples=60)
def test_whatever_follows_whatever_only_the_samples_count(parts: list[tuple[int, int]]) -> None:
    pcm = [noise(frames * FRAME / MIC_RATE_HZ, rms) for rms, frames in parts]
    by_parts, whole = said(*pcm), said(np.concatenate([np.empty(0, np.int16), *pcm]))
    assert np.array_equal(by_parts.pcm(), whole.pcm())
    assert len(whole) <= sum(map(len, pcm)) + AHEAD * FRAME
    assert (by_parts.basis, by_parts.voice_end) == (whole.basis, whole.voice_end)
    assert 0 <= whole.voice_end <= len(whole)


@pytest.mark.parametrize("rms", [90, 300])
def test_noise_ahead_is_left_out_once_somebody_speaks(rms: float) -> None:
    swelling = noise(5, rms, np.abs(np.sin(np.arange(5 * MIC_RATE_HZ) / MIC_RATE_HZ * 2)))
    before = NanoUtterance()
    before.push(swelling)
    assert len(before) > 2 * MIC_RATE_HZ, "it could have been a voice"
    before.push(voice(1))
    assert len(before) <= MIC_RATE_HZ + MARGIN
    assert before.stale, "a search that had begun is to start over"


@pytest.mark.parametrize("pcm", [quiet(30), np.zeros(30 * MIC_RATE_HZ, np.int16)], ids=["room", "zeros"])
def test_of_silence_nothing_is_kept(pcm: Pcm) -> None:
    utterance = said(pcm)
    assert (len(utterance), utterance.basis, utterance.too_long) == (0, 0, False)


def test_a_click_is_no_voice() -> None:
    click = quiet(1)
    click[5000:5300] = 30_000
    assert len(said(click)) == 0
    assert len(said(click, voice(1), quiet(1))) == len(said(quiet(1), voice(1), quiet(1)))


def test_half_a_minute_of_voice_is_too_long_and_no_more_is_held() -> None:
    whole = voice(1.0)
    utterance = said(*[whole] * 65)
    assert utterance.too_long
    assert not utterance.stale
    assert len(utterance) <= LONGEST


def test_half_a_minute_counts_from_the_voice() -> None:
    """Not from the first sample, nor from a breath that might have been a voice."""
    assert not said(quiet(100), voice(2)).too_long
    breath = noise(1, 200, np.abs(np.sin(np.arange(MIC_RATE_HZ) / MIC_RATE_HZ * np.pi)))
    breathed = NanoUtterance()
    for _ in range(40):
        breathed.push(breath)
    assert breathed.too_long
    breathed.push(voice(2))
    breathed.end()
    assert not breathed.too_long
    assert len(breathed) <= 2 * MIC_RATE_HZ + MARGIN


def test_it_does_not_matter_how_the_samples_are_cut() -> None:
    pcm = np.concatenate([quiet(2), voice(1), quiet(2), voice(1, 900), noise(1, 100)])
    whole, cuts = said(pcm), sorted(random.Random(1).sample(range(len(pcm)), 40))
    cut = said(*np.split(pcm, cuts))
    assert np.array_equal(cut.pcm(), whole.pcm())
    assert (cut.basis, cut.voice_end) == (whole.basis, whole.voice_end)
    assert np.array_equal(whole.pcm(1000, 5000), whole.pcm()[1000:5000])
