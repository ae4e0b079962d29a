"""The text that stands for older turns: sentences of the user's, and the check of a model's summary."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from app.realtime.conversation.summary import TITLE, summary_of
from app.realtime.protocol.items import AssistantAudio, CallOutputItem, Item, MessageItem, MessageText, UserAudio

TALK = (
    "Hello there!",
    "My name is Anna and I live in Hamburg.",
    "What is the weather like today?",
    "My sister Carla has 3 cats. Do you like cats?",
    "Tell me more about that.",
)
GOOD = "The user is called Anna and lives in Hamburg. Her sister Carla has 3 cats."


def said(text: str, role: str = "user") -> Item:
    return MessageItem(id=text, role=role, content=(MessageText(text),))  # type: ignore[arg-type]


def talk() -> list[Item]:
    return [one for text in TALK for one in (said(text), said(f"I see: {text}", "assistant"))]


def lines(written: str, items: list[Item], chars: int = 1000) -> list[str]:
    text, _ = summary_of(written, items, chars)
    return text.splitlines()


def test_sentences_with_facts_are_the_summary_where_no_model_writes_one() -> None:
    found = lines("", talk())
    assert found == [TITLE, "My name is Anna and I live in Hamburg.", "My sister Carla has 3 cats."]


def test_speech_counts_with_its_transcript_and_tools_with_their_results() -> None:
    spoken = MessageItem(id="a", role="user", content=(UserAudio(np.zeros(1, np.int16), "my dog is called rex"),))
    result = CallOutputItem(id="b", call_id="c", output="Rain,\n12 degrees")
    assert lines("", [spoken, result]) == [TITLE, "my dog is called rex", "A tool returned: Rain, 12 degrees"]


def test_other_languages_have_facts_too() -> None:
    found = lines(
        "", [said("Ich wohne in Köln. Wie geht's?"), said("Меня зовут Анна."), said("我的狗八歲，體重12公斤。")]
    )
    assert found[1:] == ["Ich wohne in Köln.", "Меня зовут Анна.", "我的狗八歲，體重12公斤。"]


def test_the_newest_facts_stay_where_there_is_little_room() -> None:
    facts = [said(f"My room has the number {n}.") for n in range(100, 200)]
    found = lines("", facts, chars=200)
    assert found[1:] == [f"My room has the number {n}." for n in range(195, 200)][-len(found) + 1 :]
    assert len("\n".join(found)) <= 200
    assert len(found) == 6


def test_a_fact_that_is_repeated_is_noted_once() -> None:
    assert lines("", [said("My name is Anna."), said("I said: my name is Anna."), said("My name is Anna.")])[1:] == [
        "I said: my name is Anna.",
        "My name is Anna.",
    ]


def test_a_model_s_summary_is_used_and_completed_with_the_facts_that_it_left_out() -> None:
    more = [*talk(), said("My train leaves at 17:45.")]
    text, used = summary_of(GOOD, more, 1000)
    assert used
    assert text.splitlines() == [TITLE, GOOD, "My train leaves at 17:45."]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "   ",
        "The user greeted me and asked about the weather.",  # without the facts
        "The user is Anna. " * 12 + GOOD,  # a loop
        GOOD + " She met Bernadette, Oskar and Philippa at 19:30 in Marrakesh.",  # invented
        GOOD + " " + "She also asked what the weather is like. " + "x" * 500,  # too long
    ],
    ids=["empty", "blank", "without facts", "loop", "invented", "too long"],
)
def test_an_unusable_summary_is_replaced_by_the_user_s_sentences(written: str) -> None:
    text, used = summary_of(written, talk(), 1000)
    assert not used
    assert text == summary_of("", talk(), 1000)[0]


def test_a_summary_is_shorter_than_what_it_stands_for() -> None:
    assert not summary_of("The user says that her name is indeed Anna.", [said("My name is Anna.")], 1000)[1]


def test_words_that_were_cut_off_are_unknown_to_a_summary() -> None:
    """A summary that has them was written from something else than the conversation."""
    answer = AssistantAudio("Ask Bernadette Okafor in Marrakesh about it, dear Anna.", ((100, 3),), 2000, 100)
    items = [said("My name is Anna and I have a question about the desert."), said("x" * 200, "assistant")]
    cut = MessageItem(id="cut", role="assistant", content=(answer,))
    written = "Anna has a question about the desert, and may ask Bernadette Okafor in Marrakesh."
    assert not summary_of(written, [*items, cut], 1000)[1]
    heard = MessageItem(id="cut", role="assistant", content=(replace(answer, played_samples=None),))
    assert summary_of(written, [*items, heard], 1000)[1]


def test_a_conversation_of_any_length_is_searched_in_a_bounded_time() -> None:
    items = [said("My name is Anna. " * 10_000), *(said(f"{'word ' * 400} {n}") for n in range(100)), said("I am 31.")]
    assert lines("", items) == [TITLE, "I am 31."]


def test_nothing_worth_noting_is_no_summary() -> None:
    assert summary_of("", [said("Hello!"), said("How are you?")], 1000) == ("", False)
