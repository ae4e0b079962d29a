"""Numbers that follow from their counters alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.randomness import mixed, uniform

COUNTERS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2), st.integers(0, 2**40), st.integers(0, 32))


@given(COUNTERS)
def test_a_number_lies_between_0_and_1_and_is_the_same_again(counters: tuple[int, int, int, int]) -> None:
    assert 0 <= uniform(*counters) < 1
    assert uniform(*counters) == uniform(*counters)


@pytest.mark.parametrize("place", range(4))
def test_numbers_are_spread_evenly_along_every_counter(place: int) -> None:
    """Twenty boxes of 200 each, within five standard deviations."""
    numbers = [uniform(*(n if place == i else 1 for i in range(4))) for n in range(4000)]
    boxes = Counter(int(number * 20) for number in numbers)
    assert all(130 < boxes[box] < 270 for box in range(20))
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.06


def test_it_is_splitmix64() -> None:
    """The first outputs for the seed 1234567, as in Vigna's reference code."""
    state = np.uint64(0x9E3779B97F4A7C15) * np.arange(1, 4, dtype=np.uint64) + np.uint64(1234567)
    assert mixed(state).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
