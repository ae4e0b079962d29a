"""What a request was given is counted however it was cut, and what stages left is kept: all of it, or the latest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import Chunk, StageInfo
from engine.tally import Kept, count, fresh

STAGE = StageInfo(name="a", order=0, keeps=frozenset({"codes"}), latest=frozenset({"a.state"}))


@given(st.integers(0, 50), st.lists(st.integers(1, 9), max_size=12))
def test_what_was_given_is_left_out_however_it_is_cut(given_before: int, cuts: list[int]) -> None:
    owed = {"audio": given_before}
    whole, rest = np.arange(sum(cuts)), list[int]()
    for part in np.split(whole, np.cumsum(cuts)[:-1]) if cuts else []:
        if (new := fresh(owed, Chunk("audio", part))) is not None:
            rest += new.data.tolist()
    assert rest == whole[given_before:].tolist()


def test_a_final_chunk_is_counted_by_itself() -> None:
    tally: dict[str, int] = {}
    for final in (False, False, True):
        count(tally, Chunk("heard", "x", {"final": final}))
    assert tally == {"heard": 2, "heard, final": 1}


@pytest.mark.seed("A2.4")
def test_a_state_supersedes_the_one_before_it_whatever_its_shape_and_the_others_accumulate() -> None:
    kept = Kept([STAGE])
    shapes = ((2, 3), (5,), (1, 7, 2))
    for n, shape in enumerate(shapes):
        kept.note(Chunk("codes", np.full((1, 8), n)))
        kept.note(Chunk("a.state", {"ring": np.zeros(shape)}))
    *codes, state = kept.chunks()
    assert [int(chunk.data[0, 0]) for chunk in codes] == [0, 1, 2]
    assert state.data["ring"].shape == shapes[-1]


def test_nothing_is_kept_of_a_request_that_left_nothing() -> None:
    assert Kept([]).chunks() == Kept([STAGE]).chunks() == ()


def test_a_token_without_characters_is_not_given_twice() -> None:
    given: dict[str, int] = {}
    mute, word = Chunk("text", "", {"ids": [419]}), Chunk("text", "Hello", {"ids": [1]})
    for chunk in (mute, word):
        count(given, chunk)
    assert [fresh(given, chunk) for chunk in (mute, word, mute)] == [None, None, mute]
