"""Frames in windows: each is voiced once and in order, behind no more of its past than there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.transitions.windows import ALL, PayloadWindow, Windows


def cut(frames: int, sizes: list[int], left: int, ahead: int, pieces: list[int]) -> list[PayloadWindow]:
    """The windows of so many frames, which come in pieces."""
    windows = Windows(np.zeros((0, 2), np.int64), lambda n: sizes[min(n, len(sizes) - 1)], left, ahead)
    rows = np.arange(2 * frames).reshape(-1, 2)
    found: list[PayloadWindow] = []
    while len(rows):
        n = pieces[len(rows) % len(pieces)]
        found += windows.add(rows[:n])
        rows = rows[n:]
    return [*found, windows.end()]


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)
lefts = st.integers(0, 12) | st.just(ALL)


@pytest.mark.seed("A4.3", "A4.8")
@given(st.integers(0, 60), sizes, lefts, st.integers(0, 4), sizes)
def test_every_frame_is_voiced_once_and_the_last_window_says_so(
    frames: int, sizes: list[int], left: int, ahead: int, pieces: list[int]
) -> None:
    windows = cut(frames, sizes, left, ahead, pieces)
    assert [window.finished for window in windows] == [False] * (len(windows) - 1) + [True]
    voiced = [window.frames[window.context :] for window in windows]
    new = [*(own[: len(own) - ahead] for own in voiced[:-1]), voiced[-1]]
    assert np.concatenate(new).tolist() == np.arange(2 * frames).reshape(-1, 2).tolist()
    assert [len(one) for one in new[:-1]] == [sizes[min(n, len(sizes) - 1)] for n in range(len(new) - 1)]


@pytest.mark.seed("A4.7")
@given(st.integers(0, 60), sizes, lefts, st.integers(0, 4))
def test_a_window_begins_with_as_much_of_its_past_as_there_is_and_as_it_may(
    frames: int, sizes: list[int], left: int, ahead: int
) -> None:
    """So a small first window is all of the second one's context."""
    sounded = 0
    for window in cut(frames, sizes, left, ahead, [1]):
        if len(window.frames):
            assert window.context == min(left, sounded)
            assert window.frames[0, 0] == 2 * (sounded - window.context), "the frames just before, and no others"
        sounded += len(window.frames) - window.context - (0 if window.finished else ahead)


@pytest.mark.seed("A2.14", "A4.8")
@pytest.mark.parametrize(("frames", "last"), [(0, 0), (10, 0), (11, 1), (14, 4)])
def test_a_remainder_is_flushed_and_where_there_is_none_an_empty_window_ends_it(frames: int, last: int) -> None:
    *_, end = cut(frames, [5], 2, 0, [1])
    assert (len(end.frames) - end.context, end.finished) == (last, True)
