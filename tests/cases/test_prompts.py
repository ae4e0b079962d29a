"""Prompts that servers of language models refuse, and conversations that lose a part of their history."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import Message, Request, TextPart
from engine.worker.llm.messages import TAKEN, beginning_of, begins
from tests.app.rig import Client, LoudnessVad, running, talking
from tests.cases.conversations import CALL, RESULT, SHAPES, assistant, system, user
from tests.engine.worker.llm.scripted import Connection, Reply, Scripted, answer, call, delta, scripted, stream, words
from tests.engine.worker.llm.test_messages import body, options
from tests.engine.worker.stages.llm.test_openai import spec

PART = st.one_of(st.sampled_from(["", " ", "a", "b"]).map(TextPart), st.just(CALL))
MESSAGES = st.lists(
    st.one_of(
        st.sampled_from([RESULT, system("Be brief."), system(""), user("a"), user("")]),
        st.lists(PART, max_size=3).map(lambda parts: assistant(*parts)),
    ),
    max_size=8,
)

CONTEXT = 4096
ORDER = {"type": "function", "name": "order", "description": "Order it.", "parameters": {"type": "object"}}

Body = dict[str, Any]


@asynccontextmanager
async def session(reply_to: Callable[[Body], Reply]) -> AsyncGenerator[tuple[Client, Scripted]]:
    """A session whose language model's server chooses its reply by the request's body."""

    async def reply(connection: Connection) -> bool | None:
        return await reply_to(llm.asked[-1].body)(connection)

    async with (
        scripted(reply, models=answer(200, {"data": [{"id": "m"}]})) as llm,
        running(spec(llm), vad=LoudnessVad) as server,
        talking(server) as client,
    ):
        yield client, llm


def refusal(status: int, message: str) -> Reply:
    return answer(status, {"error": {"message": message, "type": "BadRequestError", "code": status}})


def needs_a_user(body: Body) -> Reply:
    """Reply as Qwen's chat template does: without a message of the user the prompt is refused."""
    if any(message["role"] == "user" and message["content"] for message in body["messages"]):
        return stream(*words("Good day, how may I help?"))
    return refusal(500, "Jinja Exception: No user query found in messages.")


def has_room(body: Body) -> Reply:
    """Reply as vLLM does: a prompt and ``max_tokens`` that exceed the context together are refused."""
    prompt = sum(len(str(message["content"]).split()) for message in body["messages"])
    if prompt + body.get("max_tokens", 0) <= CONTEXT:
        return stream(*words("Good day."))
    return refusal(400, f"This model's maximum context length is {CONTEXT} tokens.")


def orders(body: Body) -> Reply:
    """Call a tool when asked to order, and give a long answer otherwise."""
    last = body["messages"][-1]
    if last["role"] == "user" and "order" in str(last["content"]):
        return stream(call("{}", index=0, id="c1", type="function", name="order"), delta("tool_calls"))
    return stream(*words(*(f"This is sentence number {n}. " for n in range(9))))


@pytest.mark.slow
async def test_an_agent_greets_before_anybody_spoke() -> None:
    async with session(needs_a_user) as (client, _):
        await client.configure(instructions="You are the receptionist of a bicycle shop.")
        await client.send(
            "response.create", response={"instructions": "Greet the caller.", "output_modalities": ["text"]}
        )
        response = (await client.until("response.done"))["response"]
    assert response["status"] == "completed", response["status_details"]


@pytest.mark.slow
async def test_an_answer_may_be_as_long_as_the_context_has_room() -> None:
    async with session(has_room) as (client, _):
        response = await client.ask("hello", output_modalities=["text"])
    assert response["status"] == "completed", response["status_details"]


@pytest.mark.slow
async def test_an_interrupted_answer_keeps_the_call_and_its_result() -> None:
    async with session(orders) as (client, llm):
        await client.configure(tools=[ORDER])
        await client.ask("Please order it.")
        called = client.of("response.output_item.done")[-1]["item"]
        output = {"type": "function_call_output", "call_id": called["call_id"], "output": "ordered, number 42"}
        await client.send("conversation.item.create", item=output)
        await client.send("response.create")
        await client.until("response.output_audio.delta")
        await client.send("response.cancel")
        await client.until("response.done")
        await client.ask("What did you do?", output_modalities=["text"])
        messages = llm.asked[-1].body["messages"]
    assert [one["tool_calls"][0]["function"]["name"] for one in messages if one.get("tool_calls")] == ["order"]
    assert [one["content"] for one in messages if one["role"] == "tool"] == ["ordered, number 42"]


def check_roles(messages: list[Body]) -> None:
    """Check what the strictest templates require, those of Gemma, Mistral and Qwen."""
    head, *rest = [one["role"] for one in messages]
    roles = rest if head == "system" else [head, *rest]
    assert roles[0] == "user"
    assert roles[-1] in ("user", "tool")
    follows = {
        ("user", "assistant"), ("assistant", "user"), ("assistant", "tool"), ("tool", "tool"), ("tool", "assistant"),
    }  # fmt: skip
    assert set(itertools.pairwise(roles)) <= follows
    for one in messages:
        assert one.get("tool_calls") or one["content"].strip()
    for one, two in itertools.pairwise(messages):
        assert bool(one.get("tool_calls")) is (two["role"] == "tool" and one["role"] == "assistant")


def words_of(messages: tuple[Message, ...] | list[Message]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, TextPart)]
    return sorted(line for part in parts if (line := part.text.strip()))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_each_conversation_has_the_order_of_roles_that_strict_templates_require(shape: tuple[Message, ...]) -> None:
    messages = body(*shape)["messages"]
    check_roles(messages)
    said = " ".join(str(one["content"]) for one in messages)
    assert [line for line in words_of(shape) if line not in said] == []


@given(MESSAGES)
def test_every_conversation_has_that_order(messages: list[Message]) -> None:
    check_roles(body(*messages)["messages"])


@pytest.mark.parametrize("shape", [shape for name, shape in SHAPES.items() if name != "an empty answer"])
def test_the_beginning_of_a_prompt_is_one_of_the_next_turn(shape: tuple[Message, ...]) -> None:
    before = beginning_of(Request(id="r", session="s", messages=shape), options())
    if before is None:
        assert all(message.role == "user" for message in shape)
        return
    known = shape
    while known[-1].role == "user":
        known = known[:-1]
    assert begins(before, body(*known, user("The next turn.")))


def test_a_user_message_does_not_follow_a_tool_result_directly() -> None:
    messages = body(user("Set a timer."), assistant(CALL), RESULT, user("And the lights?"))["messages"]
    after = [two["role"] for one, two in itertools.pairwise(messages) if one["role"] == "tool"]
    assert after == ["assistant"]


def test_only_a_turn_after_a_tools_result_makes_an_answer_up() -> None:
    made_up = {name for name, shape in SHAPES.items() if TAKEN in body(*shape)["messages"]}
    assert made_up == {"a turn after a tool's result", "words before a call", "two calls at once"}


def test_an_answer_is_shorter_where_the_prompt_is_long() -> None:
    short = body(user("a"), max_text_tokens=CONTEXT)["max_tokens"]
    longer = body(user("a" * 4000), max_text_tokens=CONTEXT)["max_tokens"]
    longest = body(user("a" * 90_000), max_text_tokens=CONTEXT)["max_tokens"]
    assert CONTEXT > short > CONTEXT - 50
    assert longer == pytest.approx(CONTEXT - 1600, abs=20)
    assert longest == CONTEXT // 8, "the server counts, and the estimate is rather too high"
    assert body(user("a"), max_text_tokens=99)["max_tokens"] == 99
