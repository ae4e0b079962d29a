"""What a request was given is counted however it was cut, and what stages left is kept: all of it, or the latest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chunk import Audio, Checkpoint, Codes, Text, Transcript
from engine.delivered import RecoveryLog, count, fresh
from tests.engine.fakes import data_of


@given(st.integers(0, 50), st.lists(st.integers(1, 9), max_size=12))
def test_what_was_given_is_left_out_however_it_is_cut(given_before: int, cuts: list[int]) -> None:
    owed = {"audio": given_before}
    whole, rest = np.arange(sum(cuts), dtype=np.float32), list[int]()
    for part in np.split(whole, np.cumsum(cuts)[:-1]) if cuts else []:
        if (new := fresh(owed, Audio(part))) is not None:
            rest += data_of(new).tolist()
    assert rest == whole[given_before:].tolist()


def test_a_final_chunk_is_counted_by_itself() -> None:
    tally: dict[str, int] = {}
    for final in (False, False, True):
        count(tally, Transcript("x", final=final))
    assert tally == {"transcript": 2, "transcript, final": 1}


@pytest.mark.seed("A2.4")
def test_a_state_supersedes_the_one_before_it_whatever_its_shape_and_the_others_accumulate() -> None:
    kept = RecoveryLog()
    shapes = ((2, 3), (5,), (1, 7, 2))
    for n, shape in enumerate(shapes):
        kept.note(Codes(np.full((1, 8), n, np.int16)))
        kept.note(Checkpoint({"ring": np.zeros(shape)}, "a"))
    kept.note(Checkpoint({"ring": 0}, "b"))
    *codes, state, other = kept.chunks()
    assert [int(data_of(chunk)[0, 0]) for chunk in codes] == [0, 1, 2]
    assert isinstance(state, Checkpoint)
    assert state.state["ring"].shape == shapes[-1]
    assert other == Checkpoint({"ring": 0}, "b"), "each stage has a state of its own"


def test_nothing_is_kept_of_a_request_that_left_nothing() -> None:
    assert RecoveryLog().chunks() == ()


def test_a_piece_that_was_given_in_part_begins_where_the_rest_does() -> None:
    assert fresh({"text": 2}, Text("hello", 10)) == Text("llo", 12)


def test_a_token_without_characters_is_not_given_twice() -> None:
    given: dict[str, int] = {}
    mute, word = Text("", 0, (419,)), Text("Hello", 0, (1,))
    for chunk in (mute, word):
        count(given, chunk)
    assert [fresh(given, chunk) for chunk in (mute, word, mute)] == [None, None, mute]
