"""The bound of a slope: it sees a leak, lets rest pass, and keeps its word where neighbours are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.soak.slope import LEAST, slope

MINUTES = np.arange(50) / 60  # of an hour, in hours
BAR_MB = 2.0


def noise(alike: float, seed: int, count: int = len(MINUTES), spread_mb: float = 0.3) -> NDArray[np.float64]:
    """Noise of that spread whose neighbours are correlated."""
    drawn = np.random.default_rng(seed).normal(0, spread_mb, count + 100)
    for i in range(1, len(drawn)):
        drawn[i] = alike * drawn[i - 1] + math.sqrt(1 - alike**2) * drawn[i]
    return drawn[100:]


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_rest_passes_and_a_leak_of_4_mb_an_hour_does_not(alike: float) -> None:
    quiet = 120 + noise(alike, 1)
    at_rest, leaking = slope(MINUTES, quiet), slope(MINUTES, quiet + 4 * MINUTES)
    assert at_rest is not None
    assert leaking is not None
    assert at_rest.bound <= BAR_MB < leaking.bound
    assert leaking.value - at_rest.value == pytest.approx(4.0)


def test_no_movement_at_all_is_no_growth() -> None:
    found = slope(MINUTES, [120.0] * len(MINUTES))
    assert found is not None
    assert found.bound == pytest.approx(0.0)


@pytest.mark.parametrize("count", [20, 50])
@pytest.mark.parametrize("alike", [0.0, 0.6, 0.8])
def test_the_bound_holds_the_truth_as_often_as_it_says(alike: float, count: int) -> None:
    """97.5 of 100 upper ends of a two-sided interval lie above; some fewer where neighbours are much alike."""
    times = MINUTES[:count]
    bounds = [found.bound for seed in range(200) if (found := slope(times, noise(alike, seed, count)))]
    assert np.mean(np.array(bounds) >= 0.0) >= 0.92


def test_a_curve_that_flattens_has_a_bound() -> None:
    """A process that grows into what it needs at most: its neighbours lie on one side of any line for long."""
    hours = np.arange(20) / 12
    found = slope(hours, 154 - 1.5 * np.exp(-hours) + noise(0.0, 3, 20, spread_mb=0.03))
    assert found is not None
    assert found.value < found.bound < BAR_MB


def test_taken_as_independent_the_minutes_would_break_their_word() -> None:
    """The control: the same series with the error of independent points."""
    x = MINUTES - MINUTES.mean()
    missed = 0
    for seed in range(400):
        y = noise(0.8, seed)
        growth = x @ y / (x @ x)
        rest = y - y.mean() - growth * x
        missed += growth + 2.01 * math.sqrt(rest @ rest / (len(x) - 2) / (x @ x)) < 0
    assert missed / 400 > 0.1


def test_steps_that_never_come_back_are_no_proof_of_rest() -> None:
    found = slope(MINUTES, 120 + np.cumsum(noise(0.0, 2, spread_mb=1.0)))
    assert found is not None
    assert found.bound > BAR_MB


def test_of_a_few_minutes_no_slope_is_told() -> None:
    assert slope(MINUTES[: LEAST - 1], [120.0] * (LEAST - 1)) is None
