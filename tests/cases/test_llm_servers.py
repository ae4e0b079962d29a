"""Streams of chat completions servers that differ from OpenAI's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.chunk import Text, ToolCall, ToolCallDelta, Usage
from engine.errors import ContextOverflow, StageFailed
from engine.worker.llm.client import ChatClient
from engine.worker.llm.deltas import Delta, ReasoningDelta
from engine.worker.llm.options import options_of
from tests.engine.fakes import only
from tests.engine.worker.llm.scripted import Reply, Scripted, answer, call, delta, scripted, sound, stream, text, words


async def answer_to(reply: Reply) -> list[Delta]:
    """Ask a server that sends the reply, and return the answer's pieces."""
    async with scripted(reply) as server:
        return await answer_of(server)


async def answer_of(server: Scripted, **fields: Any) -> list[Delta]:
    client = ChatClient(options_of({"url": server.url, "model": "m"}))
    try:
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields}
        return [one async for one in client.answer(body, "r")]
    finally:
        await client.aclose()


def written(answer: Sequence[Delta]) -> str:
    return "".join(one.text for one in only(Text, answer))


def calls(answer: Sequence[Delta]) -> list[tuple[str, object]]:
    return [(one.name, json.loads(one.arguments)) for one in only(ToolCall, answer)]


async def test_arguments_that_follow_an_empty_object_replace_it() -> None:
    reply = stream(
        call("{}", index=0, id="a", type="function", name="timer"),
        call('{"minutes":', index=0),
        call("5}", index=0),
        delta("tool_calls"),
    )
    assert calls(await answer_to(reply)) == [("timer", {"minutes": 5})]


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (["{}", '{"minutes": 5}'], [{"minutes": 5}]),
        (['{}{"minutes": 5}'], [{"minutes": 5}]),
        ([" {} ", '{"minutes"', ": 5}"], [{"minutes": 5}]),
        (['"{\\"minutes\\": 5}"'], [{"minutes": 5}]),
        (['"', '{\\"minutes\\": 5}', '"'], [{"minutes": 5}]),
        (['{"minutes": 5}', '{"minutes": 5}'], [{"minutes": 5}]),
        (['{"minutes"', ": 5}", '{"minutes": 5}'], [{"minutes": 5}]),
        (['{"minutes": 5}', '{"minutes": 5, "label": "tea"}'], [{"minutes": 5, "label": "tea"}]),
        (['{"minutes": 5}', "{}"], [{"minutes": 5}]),
        (['[{"minutes": 5}]'], [{"minutes": 5}]),
        (['[{"minutes": 5}, {"minutes": 9}]'], [{"minutes": 5}, {"minutes": 9}]),
        (['{"minutes": 5}', '{"minutes": 9}'], [{"minutes": 5}, {"minutes": 9}]),
        (["null"], [{}]),
        (['""'], [{}]),
        (["[]"], [{}]),
        ([""], [{}]),
        (['{"at": {"minutes": 5}, "list": [', '{"x": 1}]}'], [{"at": {"minutes": 5}, "list": [{"x": 1}]}]),
        (['{"minutes": 5'], ['{"minutes": 5']),
        (["five"], ["five"]),
    ],
)
async def test_arguments_are_an_object_however_a_server_writes_them(pieces: list[str], arguments: list[Any]) -> None:
    first, *more = pieces
    events = [call(first, index=0, id="a", type="function", name="timer"), *(call(one, index=0) for one in more)]
    found = only(ToolCall, await answer_to(stream(*events, delta("tool_calls"))))
    assert [one.name for one in found] == ["timer"] * len(arguments)
    assert len({one.call_id for one in found}) == len(found)
    expected = [one if isinstance(one, str) else json.dumps(one) for one in arguments]
    assert [one.arguments for one in found] == expected


@pytest.mark.parametrize("arguments", [[{"minutes": 5}], {"minutes": 5}])
async def test_arguments_may_be_a_value_in_the_place_of_its_json(arguments: Any) -> None:
    event = delta(tool_calls=[{"index": "0", "id": 7, "function": {"name": "timer", "arguments": arguments}}])
    assert calls(await answer_to(stream(event, delta("tool_calls")))) == [("timer", {"minutes": 5})]


async def test_pieces_that_were_passed_on_begin_the_whole_arguments() -> None:
    events = [call("{", index=0, id="a", name="timer"), call("}", index=0), call('{"minutes": 5}', index=0)]
    found = await answer_to(stream(*events, delta("tool_calls")))
    [whole] = only(ToolCall, found)
    assert whole.arguments.startswith("".join(one.arguments for one in only(ToolCallDelta, found)))


async def test_a_name_may_come_after_the_first_arguments() -> None:
    reply = stream(
        call('{"minutes":', index=0, id="a", type="function"),
        call("5}", index=0, name="timer"),
        delta("tool_calls"),
    )
    assert calls(await answer_to(reply)) == [("timer", {"minutes": 5})]


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["\ud83d", "\ude00"], "😀"),
        (["a\ud83d", "", "\ude00b"], "a😀b"),
        (["a\ud83d", "b"], "a\ufffdb"),
        (["c\ude00", "b"], "c\ufffdb"),
        (["end\ud83d"], "end\ufffd"),
        (["😀\ud83d", "\ude00\ud83d", "\ude01"], "😀😀😁"),
    ],
)
async def test_halves_of_a_character_are_joined(pieces: list[str], whole: str) -> None:
    assert written(await answer_to(stream(*(text(piece) for piece in pieces), text("", "stop")))) == whole
    thoughts = [delta(reasoning=piece) for piece in pieces]
    assert "".join(one.text for one in only(ReasoningDelta, await answer_to(stream(*thoughts, text("a", "stop"))))) in (
        whole,
        whole.removesuffix("\ufffd"),
    )


async def test_halves_of_a_character_in_arguments_are_joined() -> None:
    events = [call('{"a": "\ud83d', index=0, id="a", name="f"), call('\ude00"}', index=0)]
    assert calls(await answer_to(stream(*events, delta("tool_calls")))) == [("f", {"a": "😀"})]


async def test_an_emoji_cut_between_two_events_does_not_end_the_answer() -> None:
    halves = (json.dumps(text(piece)) for piece in ("Good day \ud83d", "\ude00 and welcome."))
    said = written(await answer_to(stream(*halves, text("", "stop"))))
    assert said == "Good day 😀 and welcome."


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("text/plain; charset=utf-8", "data: {}\n\n"),
        ("application/x-ndjson", "data: {}\n\n"),
        ("application/x-ndjson", "{}\n"),
        ("application/jsonl", "{}\r\n"),
        ("application/octet-stream", "data:{}\r\n\r\n"),
        ("application/json", "data: {}\n\n"),
        ("text/event-stream; charset=latin-1", "event: message\nid: 7\ndata: {}\n\n"),
        ("text/event-stream", ": ping\n\ndata: {}\r\r"),
    ],
)
async def test_a_stream_of_any_declared_type_is_read(kind: str, line: str) -> None:
    events = [line.replace("{}", json.dumps(event, ensure_ascii=False)).encode() for event in words("Good ", "dåy.")]
    assert written(await answer_to(sound(*events, kind=kind))) == "Good dåy."


@pytest.mark.parametrize(
    "extra",
    [
        b"\xef\xbb\xbf",
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b"event: ping\ndata:\n\n",
        b"retry: 5000\n\n",
        b'data: {"error": "", "choices": []}\n\n',
        b'data: {"error": null, "choices": null, "usage": {"prompt_tokens": 7.0}}\n\n',
        b'data: \xef\xbb\xbf{"choices": []}\n\n',
        b'data: {"choices": [], "usage": {"prompt_tokens": 7.0, "completion_tokens": "2"}}\n\n',
    ],
    ids=["BOM", "ping", "empty ping", "retry", "empty error", "null error", "BOM in the data", "float usage"],
)
async def test_an_event_that_is_no_part_of_the_answer_is_skipped(extra: bytes) -> None:
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in words("Good ", "day.")]
    found = await answer_to(sound(extra, *events, b"data: [DONE]", kind="text/event-stream"))
    assert written(found) == "Good day."


async def test_usage_in_decimals_is_counted() -> None:
    usage = {"prompt_tokens": 7.0, "completion_tokens": 2.0, "prompt_tokens_details": {"cached_tokens": 5.0}}
    [counted] = only(Usage, await answer_to(stream(text("Yes", "stop"), {"choices": [], "usage": usage})))
    assert (counted.input_tokens, counted.output_tokens, counted.cached_tokens) == (7, 2, 5)


async def test_a_page_of_plain_text_is_no_answer() -> None:
    with pytest.raises(StageFailed, match="does not support the chat completions API"):
        await answer_to(answer(200, b"Ollama is running", "text/plain"))


async def test_a_stream_declared_as_plain_text_is_read() -> None:
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in words("Good ", "day.")]
    reply = sound(*events, b"data: [DONE]\n\n", kind="text/plain; charset=utf-8")
    assert written(await answer_to(reply)) == "Good day."


@pytest.mark.parametrize(
    ("status", "message", "most"),
    [
        (
            400,
            "This model's maximum context length is 4096 tokens. However, you requested 4200 tokens (104 in the "
            "messages, 4096 in the completion).",
            3992,
        ),
        (
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096 "
            "tokens and your request has 50 input tokens (4096 > 4096 - 50).",
            4046,
        ),
        (
            400,
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
            "5000 tokens: 904 tokens from the input messages and 4096 tokens for the completion.",
            3192,
        ),
        (
            422,
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 100 `inputs` tokens and 4096 `max_new_tokens`",
            3996,
        ),
        (400, "max_tokens is too large: 4096. This model supports at most 2048 completion tokens.", 2048),
        (400, "`max_tokens` must be less than or equal to `1024`, the maximum value for `max_tokens`.", 1024),
        (500, "the request exceeds the available context size", 1024),
    ],
)
async def test_a_length_that_does_not_fit_is_asked_for_once_more_with_less(
    status: int, message: str, most: int
) -> None:
    refusal = answer(status, {"error": {"message": message}})
    async with scripted(refusal, stream(*words("Good day."))) as server:
        assert written(await answer_of(server, max_tokens=4096)) == "Good day."
        assert [one.body["max_tokens"] for one in server.asked] == [4096, most]


async def test_a_prompt_that_does_not_fit_is_refused_after_one_more_try() -> None:
    refusal = answer(400, {"error": {"message": "prompt is too long"}})
    async with scripted(refusal) as server:
        with pytest.raises(ContextOverflow):
            await answer_of(server, max_tokens=4096)
        assert [one.body["max_tokens"] for one in server.asked] == [4096, 1024]


async def test_a_prompt_that_is_longer_than_the_context_by_the_servers_count_is_refused_at_once() -> None:
    message = "This model's maximum context length is 4096 tokens. Your request has 5000 input tokens."
    async with scripted(answer(400, {"error": {"message": message}})) as server:
        with pytest.raises(ContextOverflow):
            await answer_of(server, max_tokens=64)
        assert len(server.asked) == 1
