"""Where stop strings end an answer: its text to the character, its sound to the word, however both are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.stopping import Stops
from engine.chunk import Audio, Output, Text, ToolCall, Usage

FRAME = 10  # samples


def text(words: str) -> Text:
    return Text(words, 0, (1,))


def sound(first: int, *text_ends: int) -> Audio:
    """Some frames of sound, and how far the text was after each."""
    wave = np.repeat(np.arange(first, first + len(text_ends), dtype=np.float32), FRAME)
    return Audio(wave, tuple(((first + n + 1) * FRAME, end) for n, end in enumerate(text_ends)))


def fed(stops: Stops, *chunks: Output) -> list[Output]:
    given_out = [out for chunk in chunks for out in stops.feed(chunk)]
    return given_out + ([] if stops.ended else stops.end())


def words_of(chunks: list[Output]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


def frames_of(chunks: list[Output]) -> float:
    return sum(len(chunk.wave) for chunk in chunks if isinstance(chunk, Audio)) / FRAME


@given(st.text("ab ", max_size=30), st.lists(st.text("ab ", min_size=1, max_size=4), max_size=4), st.data())
def test_text_ends_before_the_first_stop_however_it_is_cut(said: str, strings: list[str], data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=6)))
    pieces = [said[a:b] for a, b in zip([0, *cuts], [*cuts, len(said)], strict=True)]
    found = [(said.index(one) + len(one), said.index(one)) for one in strings if one in said]
    stops = Stops(strings)
    assert words_of(fed(stops, *map(text, pieces))) == said[: min(found, default=(0, len(said)))[1]]
    assert stops.ended == bool(found)


def test_what_may_begin_a_stop_is_held_and_let_go_when_it_is_none() -> None:
    stops = Stops(["two!"])
    assert words_of(stops.feed(text("one tw"))) == "one "
    assert words_of(stops.feed(text("o"))) == ""
    assert words_of(stops.feed(text(" three"))) == "two three"


def test_the_end_of_the_text_lets_go_of_what_was_held() -> None:
    stops = Stops(["two!"])
    stops.feed(text("one two"))
    usage = Usage()
    assert stops.feed(usage) == [Text("two", 4), usage]


@pytest.mark.parametrize(
    ("stop", "left", "frames"),
    [
        ("three", "one two ", 4),  # to the end of "two"
        ("ree", "one two th", 4),  # a word that is cut is not spoken
        (" two", "one", 2),
        ("one", "", 0),
        ("wo", "one t", 2),
        ("four", "one two three", 6),
    ],
)
def test_sound_ends_with_the_last_whole_word(stop: str, left: str, frames: int) -> None:
    """Two frames a word; the text is told after each."""
    chunks = [text("one "), text("two "), text("three"), sound(0, 2, 4), sound(2, 6, 8), sound(4, 11, 13)]
    for size in (1, 3, 6):  # text ahead of the sound, or with it
        late = [*chunks[:size], *chunks[3:], *chunks[size:3]] if size < 3 else chunks
        stops = Stops([stop])
        out = fed(stops, *late)
        assert words_of(out) == left
        assert frames_of(out) == frames
        assert stops.over(speaks=True) == (stop != "four")


def test_sound_of_text_that_is_held_waits_for_it() -> None:
    stops = Stops(["two!"])
    stops.feed(text("one two"))
    assert frames_of(stops.feed(sound(0, 2, 4))) == 2
    assert frames_of(stops.feed(sound(2, 6, 7))) == 0
    assert frames_of(stops.feed(text("?"))) == 2


def test_an_answer_that_was_stopped_is_over_once_its_sound_is_complete() -> None:
    stops = Stops(["two"])
    stops.feed(text("one two"))
    assert stops.ended
    assert stops.over(speaks=False)
    assert not stops.over(speaks=True)
    assert frames_of(stops.feed(sound(0, 1, 2))) == 2
    assert not stops.over(speaks=True)
    assert frames_of(stops.feed(sound(2, 4, 5, 6))) == 1
    assert stops.over(speaks=True)
    assert stops.feed(text("more")) == []


def test_without_stop_strings_everything_passes_as_it_is() -> None:
    stops = Stops(())
    for chunk in (text("one"), sound(0, 9), ToolCall("c", "f", "{}")):
        assert stops.feed(chunk) == [chunk]
    assert not stops.ended
