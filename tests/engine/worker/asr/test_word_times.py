"""Words out of the tokens that sherpa-onnx tells: as each kind of network writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chunk import Word
from engine.worker.asr.word_times import NOTHING, WordTimes, joined, words_of


@pytest.mark.parametrize(
    ("text", "tokens", "words"),
    [
        ("HELLO WORLD", [" HELLO", " WOR", "LD"], ["HELLO", "WORLD"]),
        ("hello, world.", ["▁hello", ",", "▁wor", "ld", "."], ["hello,", "world."]),
        ("你好今天", ["你", "好", "今", "天"], ["你", "好", "今", "天"]),
        ("今天 hello 天气", ["今", "天", "hel@@", "lo", "天", "气"], ["今", "天", "hello", "天", "气"]),
        ("hello world", ["hello", "world"], ["hello", "world"]),
        ("it is", [" ", "it", " is", " "], ["it", "is"]),
    ],
)
def test_tokens_become_words(text: str, tokens: list[str], words: list[str]) -> None:
    timed = words_of(text, tokens, [n / 2 for n in range(len(tokens))])
    assert [word.text for word in timed] == words


def test_a_word_begins_with_its_first_token_and_ends_with_its_last() -> None:
    tokens, starts_s = [" hel", "lo", " it"], [0.1, 0.3, 1.0]
    assert words_of("hello it", tokens, starts_s) == (Word("hello", 0.1, 0.55), Word("it", 1.0, 1.25))
    assert words_of("hello it", tokens, starts_s, [0.1, 0.08, 0.4]) == (Word("hello", 0.1, 0.38), Word("it", 1.0, 1.4))
    assert words_of("hello it", tokens, [0.1, 0.3, 0.4]) == (Word("hello", 0.1, 0.4), Word("it", 0.4, 0.65))


def test_a_words_likelihood_is_that_of_all_its_tokens() -> None:
    words = words_of("hello it", [" hel", "lo", " it"], [0, 1, 2], logprobs=[-0.5, -0.25, -1.0])
    assert [word.logprob for word in words] == [-0.75, -1.0]
    assert [word.logprob for word in words_of("hello it", [" hello", " it"], [0, 1], logprobs=[-0.5])] == [None, None]


@pytest.mark.parametrize(
    ("text", "tokens", "starts_s"),
    [
        ("hello", [], []),
        ("hello", [" hello"], []),
        ("hello", [" hello", " you"], [0, 1]),
        ("hello you", [" hello"], [0]),
        ("é", ["<0xC3>", "<0xA9>"], [0, 1]),
        ("", [" a"], [0]),
    ],
)
def test_where_tokens_do_not_make_up_the_text_no_word_has_a_time(
    text: str, tokens: list[str], starts_s: list[float]
) -> None:
    assert words_of(text, tokens, starts_s) == ()


@given(st.lists(st.text("abç你今. ", min_size=1, max_size=4), max_size=30))
def test_words_make_up_the_text_or_there_are_none(tokens: list[str]) -> None:
    text = "".join(tokens).strip()
    words = words_of(text, tokens, [float(n) for n in range(len(tokens))])
    assert not words or "".join(word.text for word in words).replace(" ", "") == text.replace(" ", "")
    assert [word.start_s for word in words] == sorted(word.start_s for word in words)


def test_parts_of_a_clip_are_joined_with_the_times_of_the_whole() -> None:
    first, second = WordTimes("hello", (Word("hello", 1, 2, -1.0),)), WordTimes("you", (Word("you", 0.5, 0.75),))
    assert second.after(first, 20) == WordTimes("hello you", (Word("hello", 1, 2, -1.0), Word("you", 20.5, 20.75)))
    assert second.after(NOTHING, 20).words == (Word("you", 20.5, 20.75),)
    assert NOTHING.after(first, 20) == first
    assert WordTimes("it").after(first, 20) == WordTimes("hello it"), "where one part has no times, the whole has none"


def test_texts_are_joined_as_their_languages_are_written() -> None:
    assert joined("hello", "you") == "hello you"
    assert joined("你好", "今天") == "你好今天"
    assert joined("你好", "you") == "你好 you"
    assert joined("", "you") == "you"
