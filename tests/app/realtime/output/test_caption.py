"""Captions: which words of the transcripts are sent when, and that none is taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.realtime.output.caption import Caption


@pytest.mark.parametrize(
    ("transcripts", "deltas"),
    [
        (["I", "I would", "I would like", "I would like it"], ["", "I", " would", " like"]),
        (["I would.", "I would like"], ["", "I would"]),
        (["I wood", "I would", "I would like"], ["", "I", " would"]),
        (["what time", "What time is", "What time is it"], ["", "", "What time is"]),
        (["wh", "when", "when is"], ["", "", "when"]),
        (["It is 1.0", "It is 1.5", "It is 1.5 km"], ["", "It is", " 1.5"]),
        (["I'm", "I'm not", "I'm not here"], ["", "I'm", " not"]),
        (["そう", "そうですね", "そうですね、は"], ["", "そう", "ですね"]),
    ],
)
def test_words_are_stable_once_two_transcripts_agree(transcripts: list[str], deltas: list[str]) -> None:
    caption = Caption()
    assert [caption.grow(words) for words in transcripts] == deltas


def test_the_final_transcript_completes_the_deltas() -> None:
    caption = Caption()
    deltas = [caption.grow("what time"), caption.grow("what time is"), caption.finish("what time is it?")]
    assert deltas == ["", "what time", " is it?"]


def test_words_that_were_contradicted_are_not_taken_back() -> None:
    caption = Caption()
    assert [caption.grow("one two"), caption.grow("one two three")] == ["", "one two"]
    assert [caption.grow("won two three"), caption.grow("won two three four")] == ["", ""]
    assert caption.finish("won two three four") == ""
    assert caption.sent == "one two"


@given(st.lists(st.text("ab c.嗯", max_size=8)), st.text("ab c.嗯", max_size=8))
def test_the_deltas_of_any_transcripts_are_what_was_sent(transcripts: list[str], final: str) -> None:
    """Joined, they begin the final transcript unless that contradicts them, and then nothing is added."""
    caption = Caption()
    stable = "".join(caption.grow(words) for words in transcripts)
    rest = caption.finish(final)
    assert stable + rest == caption.sent
    assert caption.sent == (final if final.startswith(stable) else stable)
