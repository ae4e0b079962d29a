"""The delay of an echo: jumps are confirmed, a drifting clock is followed, and mistakes are ignored."""

from __future__ import annotations

import pytest

from app.realtime.input.echo_delay import EchoDelay
from engine.core import MIC_RATE_HZ

DELAY = 2000


def known(delay: int = DELAY) -> EchoDelay:
    echo = EchoDelay()
    assert not echo.add(delay, 0)
    assert echo.add(delay, 512)
    return echo


def test_the_first_delay_counts_once_it_is_confirmed() -> None:
    assert EchoDelay().at(0) == 0
    assert known().at(10 * MIC_RATE_HZ) == DELAY


def test_a_delay_that_is_found_once_is_a_mistake() -> None:
    echo = known()
    assert not echo.add(3 * DELAY, MIC_RATE_HZ)
    assert not echo.add(DELAY, 2 * MIC_RATE_HZ)
    assert not echo.add(3 * DELAY, 3 * MIC_RATE_HZ)
    assert echo.at(3 * MIC_RATE_HZ) == DELAY


@pytest.mark.parametrize("ppm", [-100, 0, 50, 100])
def test_a_clock_that_drifts_is_followed(ppm: int) -> None:
    echo = known()
    for at in range(1, 30):
        echo.add(round(DELAY + ppm * 1e-6 * at * MIC_RATE_HZ), at * MIC_RATE_HZ)
    later = 40 * MIC_RATE_HZ
    assert echo.at(later) - echo.at(later - MIC_RATE_HZ) == pytest.approx(ppm * 1e-6 * MIC_RATE_HZ, abs=0.1)
    assert echo.at(later) == pytest.approx(DELAY + ppm * 1e-6 * later, abs=6)


def test_a_jump_keeps_the_drift() -> None:
    echo = known()
    for at in range(1, 60):
        moved = 5 * DELAY if at > 30 else DELAY
        jumped = echo.add(round(moved + 0.8 * at), at * MIC_RATE_HZ)
        assert jumped is (at == 32)
    assert echo.at(60 * MIC_RATE_HZ) == pytest.approx(5 * DELAY + 0.8 * 60, abs=3)


def test_the_expected_delay_makes_small_steps() -> None:
    """A filter has to learn each one."""
    echo = known()
    for at in range(MIC_RATE_HZ, 10 * MIC_RATE_HZ, 512):
        before = echo.at(at)
        echo.add(DELAY + at % 7 - 3, at)
        assert abs(echo.at(at) - before) < 0.5
