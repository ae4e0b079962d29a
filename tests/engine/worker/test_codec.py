"""Codec frames on their way into a code2wav: gathered, none lost, and nothing that is no frame."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chunk import Chunk, Codes
from engine.errors import StageFailed
from engine.stream import of
from engine.worker.codec import STATE_FRAMES, Codec, state_due
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import request

FRAME_SAMPLES = 960
BOOKS = Codec(4, 16, FRAME_SAMPLES)


class Cut:
    """A chunk policy that follows a list."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def size(self, count: int) -> int:
        return self.sizes[count % len(self.sizes)]

    def hurry(self) -> bool:
        return False


def frame(n: int) -> Chunk:
    return Codes(np.full((1, 4), n % 16, np.int16), n)


async def windows(sizes: list[int], frames: list[Chunk], first: int = 0) -> list[Any]:
    return [row async for row in BOOKS.windows(StageRequest(request(), 0, Cut(sizes)), of(frames), first)]


@pytest.mark.seed("A2.3", "A2.17", "A4.8")
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_frames_accumulate_in_order_however_they_are_cut_and_the_rest_is_the_latest(
    sizes: list[int], n: int, first: int
) -> None:
    rows = asyncio.run(windows(sizes, [frame(i) for i in range(n)], first))
    codes = [code for row in rows for code in row.codes[:, 0].tolist()]
    assert codes == [i % 16 for i in range(first, n)], "what is skipped is skipped to the frame, and nothing else"
    assert {row.codes.shape[1:] for row in rows} <= {(4,)}
    assert [len(row.marks) for row in rows] == [len(row.codes) for row in rows]
    marks = [mark for row in rows for mark in row.marks]
    assert marks == [((i + 1) * FRAME_SAMPLES, i) for i in range(first, n)], "a mark stands at the end of its frame"


@pytest.mark.seed("A2.13")
@pytest.mark.parametrize("code", [-1, 16, 2150])
async def test_a_code_outside_its_book_ends_the_request_before_it_is_looked_up(code: int) -> None:
    bad = Codes(np.array([[1, 2, code, 3]], np.int16))
    with pytest.raises(StageFailed, match="must be from 0 to 15"):
        await windows([3], [frame(0), frame(1), bad])


@pytest.mark.seed("A2.4", "A2.15")
@pytest.mark.parametrize("shape", [(1, 3), (1, 5), (4,), (2, 4), (0, 4)])
async def test_a_frame_of_another_shape_is_an_error_and_no_silent_mix(shape: tuple[int, ...]) -> None:
    bad = Codes(np.zeros(shape, np.int16))
    for at in range(3):
        frames = [frame(0), frame(1)]
        frames.insert(at, bad)
        with pytest.raises(StageFailed, match=r"codec frames must be \[1, 4\]"):
            await windows([3], frames)


@given(st.lists(st.integers(1, 60), max_size=20))
def test_a_state_is_due_whenever_so_many_frames_more_have_been_given(steps: list[int]) -> None:
    ends = list(itertools.accumulate(steps, initial=0))
    left = [0] + [b for a, b in itertools.pairwise(ends) if state_due(a, b)]
    assert all(end - max(one for one in left if one <= end) < STATE_FRAMES for end in ends)
