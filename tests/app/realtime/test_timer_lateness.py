"""How late a server came, and what it sends ahead for that; the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from app.realtime.timer_lateness import CALM_S, MOST_S, SOME, TIMES, USUAL_S, TimerLatenessEstimator


def told(delays: Iterable[tuple[float, float]]) -> TimerLatenessEstimator:
    """Who came so many seconds later than usual, at these moments."""
    lateness = TimerLatenessEstimator()
    for late_s, at_s in delays:
        lateness.came(USUAL_S + late_s, at_s)
    return lateness


def test_nothing_more_is_sent_ahead_on_a_calm_machine() -> None:
    lateness = told((-0.0001, at * 0.02) for at in range(1000))
    assert lateness.ahead_s(20.0) == 0


def test_a_delay_now_and_then_is_chance_and_some_are_a_sign() -> None:
    delays = [(0.5, at * 0.4 * CALM_S) for at in range(20)]
    for count in range(SOME):
        assert told(delays[:count]).ahead_s(count * 0.4 * CALM_S) == 0
    assert told([(0.010, 1.0 + at) for at in range(SOME)]).ahead_s(SOME) > 0


def test_small_delays_ask_for_several_times_as_much_and_large_ones_for_no_more_than_the_most() -> None:
    assert told([(0.010, 7.0), (0.050, 7.1), (0.050, 7.2)]).ahead_s(7.0) == pytest.approx(TIMES * 0.010)
    assert told([(3.0, at) for at in (10.0, 20.0, 30.0)]).ahead_s(30.0) == MOST_S


def test_the_largest_of_late_count_until_they_are_forgotten_little_by_little() -> None:
    lateness = told([(0.020, 10.0), (0.020, 10.1), (0.020, 10.2), (0.004, 11.0)])
    assert lateness.ahead_s(11.0) == pytest.approx(TIMES * 0.020 * (1 - 1 / CALM_S))
    halfway_s = 10.0 + CALM_S / 2
    for at in range(SOME):
        lateness.came(USUAL_S + 0.015, halfway_s + at)
    assert lateness.ahead_s(halfway_s + SOME - 1) == pytest.approx(TIMES * 0.015, rel=0.05)
    assert lateness.ahead_s(halfway_s + SOME + CALM_S) == 0
    assert lateness.ahead_s(halfway_s + 9 * CALM_S) == 0


def test_a_delay_that_several_calls_meet_is_one() -> None:
    calls = 8
    lateness = told((0.080 + 0.001 * call, 5.0 + 0.001 * call) for call in range(calls))
    assert lateness.ahead_s(5.1) == 0
    for at_s in (6.0, 7.0):
        lateness.came(USUAL_S + 0.010, at_s)
    assert lateness.ahead_s(7.0) == pytest.approx(TIMES * 0.010, rel=0.05)
