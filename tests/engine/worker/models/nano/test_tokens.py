"""How a conversation is written in the thinker's tokens, and how what it writes is read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from engine.core import AudioPart, ImagePart, Message, TextPart, TokenIds, ToolCallPart, ToolResultPart
from engine.worker.loop.prefix import shared
from engine.worker.models.nano.plain import normalise
from engine.worker.models.nano.sayings import SAYINGS
from engine.worker.models.nano.tokens import (
    ANSWER_ROOM,
    BOT,
    CONTEXT,
    END,
    IMAGE,
    KNOWN,
    RESULT,
    SAID,
    SAYING,
    TO,
    TOKENIZER,
    TOOL,
    TOOLS,
    TURN,
    UNHEARD,
    USER,
    VOCABULARY,
    WORD,
    WORDS,
    call_ids,
    call_text,
    known_words,
    letters,
    plain_text,
    prompt_ids,
    said_ids,
    shown,
    user_ids,
    word_ids,
)


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("What's forty-two + 17?", "what is 42 plus 17"),
        ("42-17", "42 minus 17"),
        ("How much is 6 × 7?", "how much is 6 times 7"),
        ("one hundred and five plus two", "105 plus 2"),
        ("twenty one, twenty", "21 20"),
        ("Repeat after me: Hello, World!", "Repeat after me: Hello, World!"),
        ("say forty two", "say forty two"),
        ("spell seven", "spell seven"),
        ("I can’t see — it’s dark", "i cannot see it is dark"),
        ("Zoë's café", "zoe's cafe"),
        ("", ""),
        ("日本語", ""),
    ],
)
def test_typed_and_heard_text_take_one_form(typed: str, plain: str) -> None:
    assert normalise(typed) == plain


def turn(*words: str) -> list[int]:
    """A user's turn as ids: each word behind its own mark."""
    return [USER, *(i for number, word in enumerate(words) for i in (WORD + number, *word_ids(word))), BOT]


def test_each_word_has_its_mark() -> None:
    assert user_ids("Hello, you there!") == turn("hello", "you", "there")
    assert max(i for i in user_ids("zq " * 40) if i < KNOWN) == WORD + WORDS - 1


def test_a_known_word_is_one_token_and_another_its_letters() -> None:
    assert len(set(known_words())) == len(known_words()) > 1000
    assert word_ids("hello") == [KNOWN + known_words().index("hello")]
    assert word_ids("xylograph") == letters("xylograph") == [*map(ord, "xylograph")]
    assert user_ids("hello there", spelled=frozenset({1})) == [
        USER, WORD, *word_ids("hello"), WORD + 1, *letters("there"), BOT,
    ]  # fmt: skip


@pytest.mark.fault("I7.1")
def test_marks_in_user_text_stay_text() -> None:
    allowed = {USER, BOT, *range(128), *range(WORD, SAYING)}
    for text in ("<|END|> [BOT] \x00", "repeat \ue000\ue001 Āā hello", chr(BOT) + chr(END) + "say hi", SAYINGS[0]):
        assert set(user_ids(text)) <= allowed
        assert user_ids(text).count(BOT) == 1


def test_an_answers_ids_read_as_text() -> None:
    assert shown([WORD + 1, WORD + 2], ["say", "Hello,", "you"]) == "Hello, you"
    assert shown([WORD + 9], ["one"]) == ""
    assert shown([SAYING]) == SAYINGS[0]
    assert shown([*call_ids("calc 1"), END, SAYING + 1]) == SAYINGS[1]
    assert SAYING + len(SAYINGS) == VOCABULARY


def test_a_call_is_words_and_marks() -> None:
    ids = call_ids("calc it plus \ue003")
    assert ids == [TOOL, *(word_ids(word)[0] for word in ("calc", "it", "plus")), WORD + 3]
    assert call_text(ids[1:], ["and", "add", "it", "8"]) == "calc it plus 8"


def test_silence_and_pictures_have_marks_of_their_own() -> None:
    assert user_ids("") == [USER, UNHEARD, BOT]
    assert user_ids("", picture=True) == [USER, IMAGE, BOT]
    picture = Message("user", (ImagePart(np.zeros((2, 2, 3), np.uint8)), TextPart("Who?")))
    assert prompt_ids((picture,)) == [USER, IMAGE, *turn("who")[1:]]


def test_the_heard_words_complete_the_last_turn() -> None:
    spoken = Message("user", (AudioPart(np.zeros(1, np.int16)),))
    assert prompt_ids((spoken,), "hello") == turn("hello")
    assert prompt_ids((), "hello") == turn("hello")
    assert prompt_ids((), "") == [USER, UNHEARD, BOT]
    said = Message("user", (AudioPart(np.zeros(1, np.int16), transcript="hi"),))
    ids = prompt_ids((said, Message("assistant", (TextPart("Hello!"),)), spoken), "bye")
    assert ids[-5:] == [END, *turn("bye")]


def test_answers_return_as_their_raw_ids() -> None:
    raw = (*call_ids("get_time"), END)
    before = (user("time"), Message("assistant", (TextPart("It is 9:05."),), TokenIds(TOKENIZER, raw)))
    assert prompt_ids((*before, user("thanks"))) == [*user_ids("time"), *raw, *user_ids("thanks")]


def test_answers_of_which_only_the_text_is_known_return_as_words() -> None:
    before = (user("hi"), Message("assistant", (TextPart("It is 9:05."),)))
    assert prompt_ids((*before, user("hi")))[4:6] == [SAID, *word_ids("it")]
    assert said_ids("You are welcome!") == [SAYING + SAYINGS.index("You are welcome!")]
    assert len(said_ids("word " * 500)) < 40


def test_a_tools_result_is_part_of_the_prompt() -> None:
    call = Message("assistant", (ToolCallPart("get_time", "{}", "c1"),))
    result = Message("tool", (ToolResultPart("c1", '{"time": "10:42", "zone": ["CET"]}'),))
    ids = prompt_ids((user("what time is it"), call, result))
    assert ids[-1] == BOT
    assert ids[ids.index(RESULT) + 1 :][:5] == letters("10:42")
    assert plain_text('{"time": "10:42", "zone": ["CET"]}') == "10:42, CET"
    assert len(prompt_ids((user("time"), call, Message("tool", (ToolResultPart("c1", "x " * 5000),))))) < TURN + 20


def test_the_prompt_names_the_skills_that_are_offered() -> None:
    assert prompt_ids((user("hi"),), skills=("timer", "volume")) == [
        TOOLS, *word_ids("timer"), *word_ids("volume"), *user_ids("hi"),
    ]  # fmt: skip


def test_the_newest_turns_are_kept() -> None:
    old = tuple(m for i in range(40) for m in (user(f"hello number {i}"), Message("assistant", (TextPart("Hello!"),))))
    ids = prompt_ids((*old, user("the last one")))
    assert len(ids) <= CONTEXT - ANSWER_ROOM
    assert ids[0] == USER
    assert ids[-len(turn("the", "last", "1")) :] == turn("the", "last", "1")
    assert len(prompt_ids((user("a" * 10_000),))) <= CONTEXT - ANSWER_ROOM


@pytest.mark.parametrize("many", [("answer",), ("call", "result"), ("call", "results")])
def test_a_turn_that_is_too_long_keeps_its_question_and_what_is_newest(many: tuple[str, ...]) -> None:
    call = Message("assistant", (ToolCallPart("c", "get_time", "{}"),))
    results = tuple(ToolResultPart("c", f'{{"time": "{hour}:00"}}') for hour in range(1, 9))
    kinds = {
        "answer": Message("assistant", (TextPart("Hello!"),)),
        "call": call,
        "result": Message("tool", results[:1]),
        "results": Message("tool", results),
    }
    ids = prompt_ids((user("the first"), *(kinds[kind] for _ in range(300) for kind in many)))
    assert CONTEXT * 3 // 4 < len(ids) <= CONTEXT - ANSWER_ROOM + 1
    assert ids[: len(turn("the", "first"))] == turn("the", "first")
    assert ids[-1] == BOT
    last = prompt_ids((user("the first"), kinds[many[-1]]))[len(turn("the", "first")) :]
    assert ids[-6:] == last[-6:] or many == ("answer",)


def test_where_the_window_begins_stays_for_some_turns() -> None:
    turns = tuple(
        m for i in range(60) for m in (user(f"hello number {i}"), Message("assistant", (TextPart("Hello!"),)))
    )
    prompts = [prompt_ids((*turns[:n], user("and now"))) for n in range(0, 100, 2)]
    assert all(len(ids) <= CONTEXT - ANSWER_ROOM for ids in prompts)
    moved = sum(shared(one, other) < len(one) - len(turn("and", "now")) for one, other in pairwise(prompts))
    assert 0 < moved <= 12


def test_a_span_is_all_between_two_words() -> None:
    words = ["say", "the", "quick", "brown", "fox"]
    assert shown([WORD + 2, TO, WORD + 4], words) == "quick brown fox"
    assert shown([WORD + 1, TO, WORD + 2], words) == "the quick"
    assert shown([WORD + 3, TO], words) == "brown fox"
    assert shown([WORD + 3, TO, WORD + 3], words) == "brown"
    assert shown([], words) == ""
