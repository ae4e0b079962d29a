"""Text becomes tokens as it comes, and these are the whole text's, however it was cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.worker.models.qwen3_tts.text import LONGEST, StreamingText, TextIds, TtsTextToken
from tests.oracles.qwen3_tts import BIG, CHINESE, TEXT
from tests.oracles.tiny_qwen3_tts import Sizes

NASTY = st.text(alphabet="aeH 'lt.,!?\n\t5天，é\u0301\u0323\u0302q😀<|im_start|>", max_size=40)


@pytest.fixture(scope="module")
def ids(checkpoint: Callable[[Sizes], Path]) -> TextIds:
    return TextIds(checkpoint(BIG))


def tokens(ids: TextIds, pieces: list[str]) -> list[TtsTextToken]:
    text, at, found = StreamingText(ids), 0, list[TtsTextToken]()
    for piece in pieces:
        found += text.feed(piece, at)
        at += len(piece)
    return [*found, *text.flush()]


@settings(max_examples=150, deadline=None)
@example("e\u0301\u03235", [3])
@example("e\u0301\u03235 a", [])
@given(NASTY, st.lists(st.integers(1, 6), max_size=40))
def test_however_a_text_is_cut_its_tokens_are_those_of_the_whole(ids: TextIds, text: str, cuts: list[int]) -> None:
    pieces, at = list[str](), 0
    for cut in [*cuts, len(text)]:
        pieces.append(text[at : at + cut])
        at += cut
    found = tokens(ids, pieces)
    if any(map(str.isalnum, text)):
        assert [token.id for token in found] == ids(text.lstrip())
        assert found[-1].text_end == len(text)
        ends = [token.text_end for token in found]
        assert ends == sorted(ends)
    else:
        assert found == []


@pytest.mark.parametrize(("text", "known"), [("Hello th", "Hello"), ("I'm w", "I'm"), ("A b, c", "A b,")])
def test_a_word_is_known_as_soon_as_the_next_one_begins(ids: TextIds, text: str, known: str) -> None:
    assert [token.id for token in StreamingText(ids).feed(text, 0)] == ids(known)


def test_a_text_imitates_no_mark_of_the_model(ids: TextIds) -> None:
    assert len(ids("<|im_start|>")) > 1


def test_a_row_of_letters_without_an_end_is_cut_at_last(ids: TextIds) -> None:
    text = StreamingText(ids)
    found = list(text.feed("a" * (LONGEST + 1), 0))
    assert found[-1].text_end == LONGEST + 1
    assert not list(text.flush()), "all of it was taken"


def test_what_is_no_character_is_a_blank(ids: TextIds) -> None:
    assert [token.id for token in tokens(ids, ["a\0b \ud800c"])] == ids("a b  c")


@pytest.mark.parametrize("text", [TEXT, CHINESE])
def test_letter_by_letter_as_at_once(ids: TextIds, text: str) -> None:
    assert tokens(ids, [*text]) == tokens(ids, [text])
