"""Steps of a request as one: joined or the latest, as their struct declares, however they are cut."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.errors import StageFailed
from engine.worker.transitions.accumulator import Accumulator, Ids


class Step(msgspec.Struct, frozen=True, tag="test.step"):
    """A field that is joined, two that are replaced: one of them an array of two dimensions."""

    rows: Ids | None = None
    state: NDArray[np.float32] | None = None
    count: int | None = None


def gathered(*steps: Step) -> Step:
    accumulator = Accumulator(Step)
    for step in steps:
        accumulator.add(step)
    return accumulator.whole


@pytest.mark.seed("A2.3")
@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 9), st.booleans())))
def test_rows_are_joined_of_the_rest_the_latest_stands_and_none_says_nothing(
    pieces: list[tuple[int, int | None, bool]],
) -> None:
    rows = np.arange(2 * sum(n for n, _, _ in pieces)).reshape(-1, 2)
    cuts = np.cumsum([0, *(n for n, _, _ in pieces)])
    steps = [
        Step(rows[a:b] if said or b > a else None, None if count is None else np.full((2, 2), count, np.float32), count)
        for a, b, (_, count, said) in zip(cuts[:-1], cuts[1:], pieces, strict=True)
    ]
    whole = gathered(*steps)
    counts = [count for _, count, _ in pieces if count is not None]
    assert (whole.rows is None) == all(step.rows is None for step in steps)
    assert whole.rows is None or whole.rows.tolist() == rows.tolist()
    assert whole.count == (counts[-1] if counts else None)
    assert (None if whole.state is None else whole.state.tolist()) == (2 * [2 * counts[-1:]] if counts else None)


@pytest.mark.seed("A2.4")
def test_what_is_replaced_is_replaced_whatever_its_shape_and_what_is_joined_must_fit() -> None:
    wide = Step(state=np.zeros((3, 7), np.float32))
    assert gathered(Step(state=np.zeros((1, 2), np.float32)), wide).state is wide.state
    with pytest.raises(StageFailed, match=r"test\.step: rows has shapes that cannot be joined: \[2, 3\] and \[2, 4\]"):
        gathered(Step(np.zeros((2, 3), np.int64)), Step(np.zeros((2, 4), np.int64)))
