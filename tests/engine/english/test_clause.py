"""Written English as a lexicon's words."""

from __future__ import annotations

import pytest

from engine.english.clause import in_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It costs $3.50, ", "it costs three dollars and fifty cents,"),
        ("Dr. Smith comes at 10:30", "doctor smith comes at ten thirty"),
        ("Really?", "really?"),
        ("Go! ", "go!"),
        ("“Is it so?” ", "is it so?"),
        ("and so on; ", "and so on,"),
        ("Well…", "well."),
        ("in the middle of ", "in the middle of"),
        ("😀 !", ""),
        ("", ""),
    ],
)
def test_numbers_and_signs_are_words_and_the_end_stays_as_it_is(text: str, words: str) -> None:
    assert in_words(text) == words
