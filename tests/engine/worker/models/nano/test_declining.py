"""nano as the first model of a chain: what it answers, and what it leaves to the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.chunk import Text, ToolCall
from engine.core import Message, Request, Sampling, TextPart, ToolCallPart, ToolDefinition, ToolResultPart
from engine.errors import Declined
from engine.training.nano.dialogues import EVAL, answers_rightly, read_requests
from engine.training.nano.eval_thinker import serve
from engine.worker.models.nano.sayings import BIGGER
from engine.worker.models.nano.thinker import Thinker
from engine.worker.stage import StageConfig

TIMER = ToolDefinition("set_timer", "", {"type": "object", "properties": {"seconds": {"type": "integer"}}})
TIDES = ToolDefinition("get_tides", "", {"type": "object", "properties": {"place": {"type": "string"}}})
STORY = ("Tell me a story about a dragon.", "Once upon a time there was a dragon named Ember. Shall I go on?")


@pytest.fixture(scope="module")
def first() -> Thinker:
    return Thinker(StageConfig(slots=1, may_decline=True))


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (TextPart(text),))


def answer(stage: Thinker, *messages: Message, heard: str | None = None, **fields: Any) -> str:
    """Return what nano says or calls; "declined" if it declines."""
    request = Request(id="r", session="s", messages=messages, sampling=Sampling(greedy=True), **fields)
    reply: list[str] = []
    for chunk in asyncio.run(serve(stage, [request], heard))[0]:
        reply += [chunk.text] if isinstance(chunk, Text) else [chunk.name] if isinstance(chunk, ToolCall) else []
    text = "".join(reply)
    return "declined" if text.endswith(BIGGER) else text


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("What is 7+5?", "7 plus 5 is 12."),
        ("What's seven plus five?", "7 plus 5 is 12."),
        ("Twelve times twelve.", "12 times 12 is 144."),
        ("My name is Anna.", "Nice to meet you, Anna."),
        ("Spell banana.", "b, a, n, a, n, a"),
        ("What comes after Monday?", "After Monday comes Tuesday."),
        ("Count to five.", "1, 2, 3, 4, 5."),
        ("What do you see?", "I have no picture. Turn on your camera."),
        ("Set a timer for ten minutes.", "I cannot do that. I was given no tool for it."),
    ],
)
def test_it_answers_what_it_knows(first: Thinker, asked: str, said: str) -> None:
    assert answer(first, user(asked)) == said
    assert answer(first, heard=asked, live=True) == said, "capitals and full stops of an open ASR"


@pytest.mark.parametrize("asked", ["Hello!", "How are you?", "Who are you?", "Thank you!", "Goodbye."])
def test_it_answers_small_talk(first: Thinker, asked: str) -> None:
    assert answer(first, user(asked)) != "declined"


@pytest.mark.parametrize(
    "asked",
    [
        "What is the capital of France?", "Tell me a story.", "Who wrote Hamlet?", "What is the color of the sky?",
        "How do I boil an egg?", "Say a poem about the sea.", "What is 17 divided by 4?",
        "Spell the capital of France.", "Which bigger model should I take?",
    ],
)  # fmt: skip
def test_it_declines_what_it_does_not_know(first: Thinker, asked: str) -> None:
    assert answer(first, user(asked)) == "declined"
    assert answer(first, heard=asked, live=True) == "declined"


@pytest.mark.parametrize("asked", ["Yes.", "Where is it?", "How many are there?", "What is its name?", "Continue."])
def test_it_declines_what_refers_to_another_models_answer(first: Thinker, asked: str) -> None:
    assert answer(first, *map(lambda make, text: make(text), (user, assistant), STORY), user(asked)) == "declined"


def test_it_goes_on_with_its_own_answers_after_another_models(first: Thinker) -> None:
    story = (user(STORY[0]), assistant(STORY[1]))
    name = (user("My name is Anna."), assistant("Nice to meet you, Anna."))
    assert answer(first, *name, *story, user("What is my name?")) == "Your name is Anna."
    assert answer(first, *story, user("Can you repeat that?")) == STORY[1]
    assert answer(first, *story, user("What is my name?")) == "declined", "the other model may have been told"


def test_with_instructions_it_leaves_small_talk_to_a_model_that_follows_them(first: Thinker) -> None:
    pirate = Message("system", (TextPart("You are a pirate called Jack."),))
    assert answer(first, pirate, user("What is your name?")) == "declined"
    assert answer(first, pirate, user("What is 7+5?")) == "7 plus 5 is 12."


def test_it_calls_the_tools_that_it_knows_and_leaves_others(first: Thinker) -> None:
    asked = user("Set a timer for ten minutes.")
    assert answer(first, asked, tools=(TIMER,)) == "set_timer"
    assert answer(first, asked, tools=(TIDES,)) == "declined", "the next model may have a use for the tool"
    call = Message("assistant", (ToolCallPart("get_tides", "{}", "c"),))
    result = Message("tool", (ToolResultPart("c", "high at noon"),))
    request = Request(id="r", session="s", messages=(user("When is high tide?"), call, result), tools=(TIDES,))
    with pytest.raises(Declined):
        asyncio.run(serve(first, [request]))


def test_alone_it_says_that_it_does_not_know() -> None:
    alone = Thinker(StageConfig(slots=1))
    assert answer(alone, user("What is the capital of France?")) == "declined", "that is what it says"
    request = Request(id="r", session="s", messages=(user("Yes."),), sampling=Sampling(greedy=True))
    chunks = asyncio.run(serve(alone, [request]))[0]
    assert [chunk.text for chunk in chunks if isinstance(chunk, Text)] == ["Okay."]


def test_it_is_right_about_a_sample_of_the_typed_sets(first: Thinker) -> None:
    """`python -m engine.training.nano.eval_thinker --chained` asks all of them."""
    names = ("typed_repeat.jsonl", "typed_spell.jsonl", "typed_sums.jsonl", "typed_refuse.txt")
    requests = [request for name in names for request in read_requests(EVAL / name)[::12]]
    texts = [asyncio.run(serve(first, [_request(request.text)]))[0] for request in requests]
    answers = ["".join(chunk.text for chunk in chunks if isinstance(chunk, Text)) for chunks in texts]
    right = [answers_rightly(request.expect, text) for request, text in zip(requests, answers, strict=True)]
    assert sum(right) >= 0.95 * len(right)


def _request(text: str) -> Request:
    return Request(id="r", session="s", messages=(user(text),), sampling=Sampling(greedy=True))
