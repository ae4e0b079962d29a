"""A transcript in pieces that can be read at once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.http.cues import LONGEST_S, MOST_CHARACTERS, Cue, cues
from engine import Word


def said(text: str, *starts_s: float) -> list[Word]:
    return [Word(word, start_s, start_s + 0.2) for word, start_s in zip(text.split(), starts_s, strict=True)]


def test_without_times_there_are_none() -> None:
    assert cues("hello there", ()) == []


def test_a_pause_and_a_full_stop_begin_another() -> None:
    text = "One two. Three four"
    assert [cue.text for cue in cues(text, said(text, 0, 0.3, 0.6, 0.9))] == ["One two.", "Three four"]
    text = "one two three"
    assert cues(text, said(text, 0, 0.3, 2)) == [Cue(0, 0.5, "one two"), Cue(2, 2.2, "three")]


def test_characters_without_spaces_stand_as_they_are_written() -> None:
    words = [Word(character, n / 4, n / 4 + 0.2) for n, character in enumerate("你好。今天")]
    assert [cue.text for cue in cues("你好。今天", words)] == ["你好。", "今天"]


def test_the_likelihood_is_the_words_on_average_and_not_known_where_one_is_not() -> None:
    words = [Word("a", 0, 0.1, -1.0), Word("b", 0.2, 0.3, -2.0)]
    assert cues("a b", words) == [Cue(0, 0.3, "a b", -1.5)]
    assert cues("a b", [words[0], Word("b", 0.2, 0.3)]) == [Cue(0, 0.3, "a b")]


@given(st.lists(st.tuples(st.text("abc.你 ", min_size=1, max_size=12), st.floats(0, 3)), max_size=60))
def test_no_word_is_lost_or_doubled_and_no_piece_is_too_long(drawn: list[tuple[str, float]]) -> None:
    words, at_s = list[Word](), 0.0
    for text, gap_s in drawn:
        for part in text.split():
            words.append(Word(part, at_s, at_s + 0.1))
            at_s += 0.1 + gap_s
    text = " ".join(word.text for word in words)
    made = cues(text, words)
    assert " ".join(cue.text for cue in made) == text
    assert all(cue.end_s - cue.start_s <= LONGEST_S for cue in made)
    assert all(len(cue.text) <= MOST_CHARACTERS for cue in made)
    assert all(one.end_s <= other.start_s + 1e-9 for one, other in pairwise(made))
