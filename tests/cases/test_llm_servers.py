"""Streams of chat completions servers that differ from OpenAI's own."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from engine.chunk import Text, ToolCall
from engine.worker.llm.client import ChatClient
from engine.worker.llm.deltas import Delta
from engine.worker.llm.options import options_of
from tests.engine.fakes import only
from tests.engine.worker.llm.scripted import Reply, call, delta, scripted, sound, stream, text, words


async def answer_to(reply: Reply) -> list[Delta]:
    """Ask a server that sends the reply, and return the answer's pieces."""
    async with scripted(reply) as server:
        client = ChatClient(options_of({"url": server.url, "model": "m"}))
        try:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            return [one async for one in client.answer(body, "r")]
        finally:
            await client.aclose()


def written(answer: Sequence[Delta]) -> str:
    return "".join(one.text for one in only(Text, answer))


def calls(answer: Sequence[Delta]) -> list[tuple[str, object]]:
    return [(one.name, json.loads(one.arguments)) for one in only(ToolCall, answer)]


@pytest.mark.xfail(strict=True, reason="arguments are appended to an empty object that came first")
async def test_arguments_that_follow_an_empty_object_replace_it() -> None:
    reply = stream(
        call("{}", index=0, id="a", type="function", name="timer"),
        call('{"minutes":', index=0),
        call("5}", index=0),
        delta("tool_calls"),
    )
    assert calls(await answer_to(reply)) == [("timer", {"minutes": 5})]


async def test_a_name_may_come_after_the_first_arguments() -> None:
    reply = stream(
        call('{"minutes":', index=0, id="a", type="function"),
        call("5}", index=0, name="timer"),
        delta("tool_calls"),
    )
    assert calls(await answer_to(reply)) == [("timer", {"minutes": 5})]


@pytest.mark.xfail(strict=True, reason="half of a surrogate pair ends the answer with an error")
async def test_an_emoji_cut_between_two_events_does_not_end_the_answer() -> None:
    halves = (json.dumps(text(piece)) for piece in ("Good day \ud83d", "\ude00 and welcome."))
    answer = written(await answer_to(stream(*halves, text("", "stop"))))
    assert answer.startswith("Good day ")
    assert answer.endswith(" and welcome.")


@pytest.mark.xfail(strict=True, reason="a stream with the type text/plain is refused")
async def test_a_stream_declared_as_plain_text_is_read() -> None:
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in words("Good ", "day.")]
    reply = sound(*events, b"data: [DONE]\n\n", kind="text/plain; charset=utf-8")
    assert written(await answer_to(reply)) == "Good day."
