"""The benchmark of denoisers: which turns count as false, missed, and a sentence's own, and what a denoiser gets."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.denoisers import DENOISERS, Framewise, Wave
from benchmarks.noise import Turns, lag, spoken, through
from benchmarks.rooms import Line, assistant
from engine.core import MIC_RATE_HZ

S = MIC_RATE_HZ
PEOPLE = [Line("one two three", "somebody", "en", wave) for wave in assistant()[:4]]


def test_a_sentence_has_its_own_turn_only_where_no_other_is_in_it() -> None:
    sentences = [(1 * S, 3 * S), (5 * S, 7 * S), (9 * S, 11 * S)]
    found = Turns(((0, 8 * S), (9 * S, 12 * S), (20 * S, 26 * S)), minutes=0.5)
    assert found.starts == 6
    assert found.open_s == pytest.approx(34)
    assert found.own(sentences) == 1
    assert found.missed(sentences) == 0
    assert found.missed([(13 * S, 14 * S), (18 * S, 21 * S)]) == 2  # the second turn begins too late


def test_a_scene_has_the_sentences_that_were_asked_for_and_a_pause_after_them() -> None:
    made = spoken(PEOPLE, PEOPLE, 3, "steady", 10.0)
    assert len(made.said) == 3
    assert len(made.microphone) == made.said[-1].end + MIC_RATE_HZ


@pytest.mark.parametrize("rate_hz", [MIC_RATE_HZ, 48_000])
def test_a_denoiser_gets_frames_at_its_rate_and_its_delay_is_measured(
    rate_hz: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: set[int] = set()
    held = [np.zeros(rate_hz // 100, np.float32)]

    def late(wave: Wave) -> Wave:
        sizes.add(len(wave))
        held.append(wave)
        return held[-2]

    monkeypatch.setitem(DENOISERS, "late", lambda: Framewise(late, rate_hz))  # type: ignore[arg-type]
    pcm = np.random.default_rng(1).normal(0, 2000, MIC_RATE_HZ).astype(np.int16)
    after = through("late", pcm)
    assert sizes == {rate_hz // 100}
    assert len(after) == len(pcm)
    assert lag(pcm, after) == pytest.approx(MIC_RATE_HZ // 100, abs=2)
    assert through("none", pcm) is pcm
