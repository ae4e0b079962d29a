"""The counts of what a request was given do not depend on how it was cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.chunk import Audio, Text, Transcript
from engine.delivered import count, fresh
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


def test_a_piece_that_was_given_in_part_begins_where_the_rest_does() -> None:
    assert fresh({"text": 2}, Text("hello", 10)) == Text("llo", 12)


def test_a_token_without_characters_is_not_given_twice() -> None:
    given: dict[str, int] = {}
    mute, word = Text("", 0, (419,)), Text("Hello", 0, (1,))
    for chunk in (mute, word):
        count(given, chunk)
    assert [fresh(given, chunk) for chunk in (mute, word, mute)] == [None, None, mute]
