"""How late a server came, and what it sends ahead for that; the clock is an argument."""

from __future__ import annotations

import pytest

from app.lateness import CALM_S, MOST_S, TIMES, USUAL_S, Lateness


def test_nothing_more_is_sent_ahead_on_a_calm_machine() -> None:
    lateness = Lateness()
    for at in range(1000):
        lateness.came(USUAL_S * 0.99, at * 0.02)
        assert lateness.ahead_s(at * 0.02) == 0


def test_a_small_delay_asks_for_several_times_as_much_and_a_large_one_for_no_more_than_the_most() -> None:
    lateness = Lateness()
    lateness.came(USUAL_S + 0.010, 7.0)
    assert lateness.ahead_s(7.0) == pytest.approx(TIMES * 0.010)
    lateness.came(3.0, 8.0)
    assert lateness.ahead_s(8.0) == MOST_S


def test_the_largest_of_late_counts_until_it_is_forgotten_little_by_little() -> None:
    lateness = Lateness()
    lateness.came(USUAL_S + 0.020, 10.0)
    lateness.came(USUAL_S + 0.004, 11.0)
    assert lateness.ahead_s(11.0) == pytest.approx(TIMES * 0.020 * (1 - 1 / CALM_S))
    halfway_s = 10.0 + CALM_S / 2
    lateness.came(USUAL_S + 0.015, halfway_s)
    assert lateness.ahead_s(halfway_s) == pytest.approx(TIMES * 0.015)
    assert lateness.ahead_s(halfway_s + CALM_S) == 0
    assert lateness.ahead_s(halfway_s + 9 * CALM_S) == 0
