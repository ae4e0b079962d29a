"""How much of an answer was heard, in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.realtime.protocol.items import AssistantAudio

TEXT = "one two three four"
MARKS = ((2400, 4), (4800, 8), (9600, 18))


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        (None, TEXT),
        (0, ""),
        (2399, ""),
        (2400, "one"),
        (4800, "one two"),
        (7200, "one two"),
        (9600, TEXT),
        (99_999, TEXT),
    ],
)
def test_only_whole_words_were_heard(heard: int | None, words: str) -> None:
    assert AssistantAudio(TEXT, MARKS, 9600, heard).played_text == words


def test_letter_by_letter_a_word_is_heard_with_its_last_letter_and_before_its_comma() -> None:
    text = "well, it's on"
    marks = tuple((100 * (at + 1), at + 1) for at in range(len(text)))
    heard = {samples: AssistantAudio(text, marks, 1300, samples).played_text for samples in range(0, 1400, 100)}
    assert [heard[n] for n in (300, 400, 500, 800, 900, 1000, 1200, 1300)] == [
        *("", "well", "well,", "well,", "well,", "well, it's", "well, it's", text),
    ]


def test_text_that_was_never_made_sound_was_not_heard() -> None:
    assert AssistantAudio("some words", (), 0, 0).played_text == ""
    assert AssistantAudio("some words").played_text == "some words"


@given(st.lists(st.text("ab ", min_size=1, max_size=6), min_size=1, max_size=8), st.integers(0, 9_000))
def test_what_was_heard_is_a_prefix_and_grows(pieces: list[str], heard: int) -> None:
    text, marks = "", []
    for n, piece in enumerate(pieces):
        text += piece
        marks.append(((n + 1) * 1000, len(text)))
    less, more = (AssistantAudio(text, tuple(marks), 9_000, samples).played_text for samples in (heard, heard + 500))
    assert text.startswith(less)
    assert more.startswith(less)
