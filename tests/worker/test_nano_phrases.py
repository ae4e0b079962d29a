"""Phrases stand for their text and for nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.training.nano.answers import SAYINGS
from engine.training.nano.dialogues import stream
from engine.training.nano.train_thinker import answer_ids
from engine.worker.models.nano.phrases import CONCEPTS, PHRASES, concept, cut
from engine.worker.models.nano.thinker import PHRASE, SPELL, WORD, phrase_ids, scene_ids, shown, text_ids, user_ids


def test_no_phrase_twice_and_all_can_be_said() -> None:
    assert len(set(PHRASES)) == len(PHRASES)
    assert all(phrase.isascii() and phrase.isprintable() for phrase in PHRASES)


@given(st.lists(st.sampled_from([*PHRASES, "s", "es", " ", "a", "1", "redder", "I"]), max_size=6).map("".join))
def test_a_cut_text_reads_as_before(text: str) -> None:
    assert "".join(PHRASES[part] if isinstance(part, int) else part for part in cut(text)) == text
    assert shown(phrase_ids(text)) == text


def test_every_saying_is_short() -> None:
    assert all(len(phrase_ids(text)) <= 3 for texts in SAYINGS.values() for text in texts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2 reds", ["2", " ", "red", "s"]),
        ("redder", list("redder")),
        ("tired", list("tired")),
        ("Okay then", list("Okay then")),
    ],
)
def test_words_are_whole(text: str, parts: list[str]) -> None:
    assert [PHRASES[part] if isinstance(part, int) else part for part in cut(text)] == parts


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("stars", "star"),
        ("crosses", "cross"),
        ("Grey", "gray"),
        ("monday", "Monday"),
        ("lamp", "light"),
        ("starry", None),
        ("i", None),
    ],
)
def test_a_users_word_has_its_token_also_in_the_plural(word: str, found: str | None) -> None:
    number = concept(word)
    assert (None if number is None else CONCEPTS[number]) == found


def test_a_users_word_keeps_its_letters() -> None:
    assert user_ids("spell star")[-6:-1] == [*text_ids("star"), PHRASE + CONCEPTS.index("star")]
    assert scene_ids("dim red") == [*phrase_ids("dim"), *phrase_ids("red")]


def test_what_is_spelled_is_letters() -> None:
    ids = answer_ids(f"{chr(0xE000 + 10)}star")
    assert ids == [SPELL, *text_ids("star")]
    assert shown(ids) == "s, t, a, r"


def test_every_answer_that_is_taught_reads_as_it_was_written() -> None:
    dialogues = stream(3)
    for turn in (turn for _ in range(400) for turn in next(dialogues)):
        if turn.answer.isascii():
            assert shown(answer_ids(turn.answer)) == turn.answer
        assert WORD + 32 not in answer_ids(turn.answer)
