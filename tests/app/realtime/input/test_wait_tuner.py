"""The wait that adapts to a speaker's pauses."""

from __future__ import annotations

import pytest

from app.realtime.input.wait_tuner import LONGEST, SHORTEST, WaitTuner
from benchmarks.tuned_waits import STYLES, simulate


@pytest.mark.parametrize("target", [0.005, 0.02, 0.2])
def test_a_session_begins_with_the_waits_of_the_model(target: float) -> None:
    assert WaitTuner(target).factor == pytest.approx(1.0)


def test_short_pauses_shorten_the_wait_and_long_ones_lengthen_it_within_bounds() -> None:
    quick, slow = WaitTuner(0.02), WaitTuner(0.02)
    for _ in range(50):
        quick.add_pause(100, 600)
        slow.add_pause(6_000, 600)
    assert quick.factor == SHORTEST
    assert slow.factor == LONGEST


def test_a_pause_counts_relative_to_the_wait_that_the_model_had_chosen() -> None:
    certain, doubtful = WaitTuner(0.02), WaitTuner(0.02)
    certain.add_pause(300, 200)
    doubtful.add_pause(3_000, 2_000)
    assert certain.factor == pytest.approx(doubtful.factor)
    assert certain.factor > 1


def test_more_pauses_in_a_turn_need_a_longer_wait() -> None:
    one, three = WaitTuner(0.02), WaitTuner(0.02)
    for n in range(60):
        for tuner in (one, three):
            tuner.add_pause(400 + n, 600)
        one.add_turn()
        if n % 3 == 0:
            three.add_turn()
    assert three.factor > one.factor


@pytest.mark.parametrize("style", ["brisk", "usual", "hesitant"])
def test_the_target_is_reached_within_twenty_turns_near_the_best_fixed_wait(style: str) -> None:
    result = simulate(STYLES[style], target=0.02, sessions=60)
    assert result.cuts < 0.03
    assert result.wait_ms < result.best_ms + 75
