"""What the listener hears lies on the microphone's own time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from app.realtime.input.playback_timeline import PlaybackTimeline
from engine.core import MIC_RATE_HZ, Pcm

REACH = 1000


def count(first: int, samples: int) -> Pcm:
    return np.arange(first, first + samples, dtype=np.int16)


def heard(timeline: PlaybackTimeline, start: int, end: int) -> list[int]:
    return timeline.between(start, end).tolist()


def test_pieces_follow_each_other_or_begin_when_they_are_announced() -> None:
    timeline = PlaybackTimeline(REACH)
    timeline.playing(count(1, 3), 10)
    timeline.playing(count(4, 2), 11)
    timeline.playing(count(6, 1), 17)
    assert heard(timeline, 9, 19) == [0, 1, 2, 3, 4, 5, 0, 0, 6, 0]
    assert timeline.is_silent(15, 17)
    assert not timeline.is_silent(14, 16)


def test_stopped_playback_is_not_heard() -> None:
    timeline = PlaybackTimeline(REACH)
    timeline.playing(count(1, 4), 0)
    timeline.stopped(2)
    assert heard(timeline, 0, 4) == [1, 2, 0, 0]


def test_paused_playback_is_heard_later() -> None:
    timeline = PlaybackTimeline(REACH)
    timeline.playing(count(1, 4), 0)
    timeline.paused(2)
    assert heard(timeline, 0, 4) == [1, 2, 0, 0]
    assert timeline.is_silent(2, 4)
    timeline.resumed(5)
    assert heard(timeline, 0, 8) == [1, 2, 0, 0, 0, 3, 4, 0]


def test_what_is_out_of_reach_is_forgotten() -> None:
    timeline = PlaybackTimeline(REACH)
    timeline.playing(count(1, 4), 0)
    timeline.forget(2)
    assert heard(timeline, 0, 4) == [0, 0, 3, 4]
    timeline.playing(count(1, 1), 10 * REACH)
    assert heard(timeline, 10 * REACH, 10 * REACH + 1) == [1]
    assert len(timeline._played) == 1


def test_a_microphone_that_stands_still_hears_the_newest_seconds() -> None:
    timeline = PlaybackTimeline(REACH)
    for _ in range(20):
        timeline.playing(np.ones(MIC_RATE_HZ, np.int16), 0)
    assert len(timeline._played) <= 5 * MIC_RATE_HZ + REACH
    assert timeline.between(0, 5 * MIC_RATE_HZ).all()


@pytest.mark.parametrize("shift", [0.0, 0.25, 0.5, 0.9])
def test_playback_between_two_samples_is_interpolated(shift: float) -> None:
    def wave(at: NDArray[np.float64]) -> Pcm:
        return (8000 * np.sin(2 * np.pi * 4000 * at / MIC_RATE_HZ)).astype(np.int16)

    timeline = PlaybackTimeline(REACH)
    timeline.playing(wave(np.arange(200.0)), 0)
    expected = wave(50 + shift + np.arange(100.0))
    assert timeline.interpolated(50 + shift, 100) == pytest.approx(expected, abs=100)
