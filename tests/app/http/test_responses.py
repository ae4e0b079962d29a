"""``/v1/responses``, through the official client; every event and every object against its types, strictly."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.lib._tools import pydantic_function_tool
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, ValidationError

from app.http import live, messages
from app.http.sound import encoded
from engine import AudioPart, Engine, ImagePart, TextPart, ToolCallPart, ToolResultPart
from engine import Request as EngineRequest
from tests.app.http.test_chat import PIXEL
from tests.app.http.test_sound import WAVE
from tests.app.openai_types import strictly
from tests.app.rig import Running, eventually, keys_file, running, script_spec

URL = "/v1/responses"
TIME: dict[str, Any] = {"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}}}
SOUND = {"type": "input_audio", "input_audio": {"data": base64.b64encode(encoded(WAVE, "wav")).decode()}}
PICTURE = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}


def user(*parts: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "content": content}


async def post(server: Running, key: str = "", **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=server.http, headers=headers, timeout=60) as http:
        return await http.post(URL, json={"model": "script", "input": "say: hello", **body})


async def whole(server: Running, **body: Any) -> dict[str, Any]:
    answer = await post(server, **body)
    assert answer.status_code == 200, answer.text
    strictly(Response, answer.json())
    return answer.json()


async def streamed(server: Running, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream: each of openai's types, named in its head, and numbered from 0."""
    answer = await post(server, stream=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *blocks, rest = answer.text.split("\n\n")
    assert rest == ""
    events: list[dict[str, Any]] = []
    for block in blocks:
        head, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert head == f"event: {event['type']}"
        strictly(ResponseStreamEvent, event)
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def types(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def text(body: dict[str, Any]) -> str:
    return "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])


@pytest.fixture
def asked(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[EngineRequest]:
    """The requests that the engine gets."""
    requests: list[EngineRequest] = []
    engine = server.service.engine_host.engine
    assert isinstance(engine, Engine)
    opens = engine.open

    def opened(request: EngineRequest, inputs: Any = None) -> Any:
        requests.append(request)
        return opens(request, inputs)

    monkeypatch.setattr(engine, "open", opened)
    return requests


async def test_a_whole_response(server: Running) -> None:
    body = await whole(server, input="say: one two three", instructions="Be brief.", metadata={"a": "b"})
    assert body["id"].startswith("resp_")
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", "script")
    assert text(body) == "one two three"
    assert (body["instructions"], body["metadata"]) == ("Be brief.", {"a": "b"})
    assert body["completed_at"] >= body["created_at"] > 1_700_000_000
    assert body["usage"]["output_tokens"] == 3
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + 3
    assert body["error"] is body["incomplete_details"] is None


async def test_a_response_streams(server: Running) -> None:
    events = await streamed(server, input="say: one two")
    assert types(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["delta"] for event in events if "delta" in event] == ["one ", "two"]
    created, completed = events[0]["response"], events[-1]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert completed["id"] == created["id"]
    assert completed["output"] == [events[-2]["item"]]
    assert events[2]["item"]["content"] == []
    assert text(completed) == events[6]["text"] == events[7]["part"]["text"] == "one two"
    assert len({event["item_id"] for event in events if "item_id" in event} | {events[2]["item"]["id"]}) == 1


async def test_calls_stream_and_their_results_are_answered(server: Running) -> None:
    events = await streamed(server, input='tool time {"zone": "UTC"} ; date {}', tools=[TIME, {**TIME, "name": "date"}])
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    assert types(events) == ["created", "in_progress", call[0], call[1], call[1], *call[2:], *call, "completed"]
    first, second = events[-1]["response"]["output"]
    assert (first["name"], first["arguments"], second["name"]) == ("time", '{"zone": "UTC"}', "date")
    assert [event["output_index"] for event in events if event["type"].endswith(".done")] == [0, 0, 1, 1]
    assert (
        "".join(event["delta"] for event in events if event.get("item_id") == first["id"] and "delta" in event)
        == (first["arguments"])
    )
    results = [{"type": "function_call_output", "call_id": one["call_id"], "output": "noon"} for one in (first, second)]
    body = await whole(server, input=results[-1:], previous_response_id=events[-1]["response"]["id"])
    assert text(body) == "The tool says: noon"
    again = [user("what time is it?"), first, second, *results]
    assert text(await whole(server, input=again)) == "The tool says: noon"


async def test_what_is_sent_becomes_the_engine_s_messages(server: Running, asked: list[EngineRequest]) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "time", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "noon"}]}
    await whole(
        server,
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Be kind."},
            user("hello", PICTURE, SOUND),
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
            call, {**call, "call_id": "d"}, output, {**output, "call_id": "d"},
            user("say: x"),
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be quick."}]},
        ],
    )  # fmt: skip
    heard, request = asked
    assert heard.wants == {"transcript"}
    roles = ["system", "system", "user", "assistant", "tool", "tool", "system", "user"]
    assert [message.role for message in request.messages] == roles
    assert [type(part) for part in request.messages[2].parts] == [TextPart, ImagePart, AudioPart]
    assert request.messages[3].parts == (
        TextPart("Hello."), ToolCallPart("time", "{}", "c"), ToolCallPart("time", "{}", "d")
    )  # fmt: skip
    assert request.messages[4].parts == (ToolResultPart("c", "noon"),)
    assert [request.messages[i].parts for i in (0, 1, 6)] == [
        (TextPart(said),) for said in ("Be brief.", "Be kind.", "Be quick.")
    ]


async def test_a_response_goes_on_from_the_previous_one(server: Running, asked: list[EngineRequest]) -> None:
    first = await whole(server, input="say: one two", instructions="Be brief.")
    second = await whole(server, input="said", previous_response_id=first["id"])
    assert text(second) == "I said: one two"
    assert second["previous_response_id"] == first["id"]
    third = await whole(server, input="said", previous_response_id=second["id"], instructions="Be kind.")
    assert text(third) == "I said: one two I said: one two"
    fork = await whole(server, input="said", previous_response_id=first["id"])
    assert text(fork) == "I said: one two"
    said = [[message.role for message in request.messages] for request in asked]
    turn = ["user", "assistant"]
    assert said == [["system", "user"], [*turn, "user"], ["system", *turn, *turn, "user"], [*turn, "user"]]
    assert len({request.session for request in asked}) == 1  # the engine has the prompt's beginning there


async def test_the_user_s_words_are_kept_with_their_sound(server: Running, asked: list[EngineRequest]) -> None:
    first = await whole(server, input=[user(SOUND)])
    assert text(first) == "I heard 1.0 seconds."
    await whole(server, input="say: x", previous_response_id=first["id"])
    (part,) = asked[-1].messages[0].parts
    assert isinstance(part, AudioPart)
    assert part.transcript == "1.0 seconds"


async def test_they_are_so_where_instructions_stand_behind_them(server: Running, asked: list[EngineRequest]) -> None:
    first = await whole(server, input=[user(SOUND), {"role": "developer", "content": "Be brief."}])
    assert text(first) == "I heard 1.0 seconds."
    await whole(server, input="say: x", previous_response_id=first["id"])
    (part,) = [one for message in asked[-1].messages for one in message.parts if isinstance(one, AudioPart)]
    assert part.transcript == "1.0 seconds"


async def test_instructions_behind_a_call_stand_before_its_turn(server: Running, asked: list[EngineRequest]) -> None:
    """A server behind the thinker wants nothing between a call and its result."""
    first = await whole(server, input="tool time {}", tools=[TIME])
    output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "noon"}
    brief = {"role": "developer", "content": "Be brief."}
    await whole(server, input=[output, brief], previous_response_id=first["id"])
    assert [message.role for message in asked[-1].messages] == ["system", "user", "assistant", "tool"]


async def test_an_item_of_an_answer_may_be_referred_to(server: Running, asked: list[EngineRequest]) -> None:
    first = await whole(server, input="say: one two")
    (item,) = first["output"]
    for reference in ({"type": "item_reference", "id": item["id"]}, {"id": item["id"]}):
        assert text(await whole(server, input=[user("x"), reference, user("said")])) == "I said: one two"
    unknown = await post(server, input=[user("x"), {"type": "item_reference", "id": "msg_none"}])
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "input.1.id")


async def test_a_response_is_found_until_it_is_deleted(openai: AsyncOpenAI) -> None:
    made = await openai.responses.create(model="script", input="say: one")
    assert (await openai.responses.retrieve(made.id)) == made
    with pytest.raises(APIStatusError, match="leave stream out"):
        await openai.responses.retrieve(made.id, stream=True)
    await openai.responses.delete(made.id)
    with pytest.raises(APIStatusError, match="not found") as gone:
        await openai.responses.retrieve(made.id)
    assert gone.value.status_code == 404
    with pytest.raises(APIStatusError, match="not found"):
        await openai.responses.delete(made.id)
    with pytest.raises(APIStatusError, match="Previous response with id") as unknown:
        await openai.responses.create(model="script", input="x", previous_response_id=made.id)
    assert (unknown.value.status_code, unknown.value.code) == (400, "previous_response_not_found")
    assert unknown.value.param == "previous_response_id"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_not_to_be_stored_is_not(stream: bool, server: Running) -> None:
    made = await post(server, store=False, stream=stream)
    assert made.status_code == 200
    assert len(server.service.kept) == 0
    await post(server, stream=stream)
    assert len(server.service.kept) == 1
    assert server.metric("parley_kept_responses") == 1
    assert server.metric("parley_kept_bytes") == server.service.kept.held > 0


async def test_a_stream_is_kept_before_its_last_event(
    openai: AsyncOpenAI, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may go on at once."""
    kept: list[int] = []
    write = live._Body.write

    async def written(body: Any, piece: bytes) -> None:
        kept.append(len(server.service.kept))
        await write(body, piece)

    monkeypatch.setattr(live._Body, "write", written)
    async with openai.responses.stream(model="script", input="say: one two") as stream:
        done = await stream.get_final_response()
    assert (kept[0], kept[-1], len(kept)) == (0, 1, 10)
    again = await openai.responses.create(model="script", input="said", previous_response_id=done.id)
    assert again.output_text == "I said: one two"


class Clock(BaseModel):
    zone: str


async def test_a_call_is_parsed(openai: AsyncOpenAI) -> None:
    tool: Any = pydantic_function_tool(Clock, name="time")
    flat: Any = {"type": "function", **tool["function"]}
    made = await openai.responses.parse(model="script", input='tool time {"zone": "UTC"}', tools=[flat])
    (call,) = made.output
    assert call.type == "function_call"
    assert call.arguments == '{"zone": "UTC"}'


async def test_an_answer_at_its_limit_is_incomplete(server: Running) -> None:
    events = await streamed(server, input="long 20", max_output_tokens=5)
    assert types(events)[-2:] == ["output_item.done", "incomplete"]
    body = events[-1]["response"]
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert body["output"][0]["status"] == "incomplete"
    assert body["completed_at"] is None
    assert body["usage"]["output_tokens"] == 5
    assert (await whole(server, input="long 20", max_output_tokens=5))["status"] == "incomplete"
    assert len(server.service.kept) == 2  # it is a turn of the conversation


def allowing(*names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "tools": [{"type": "function", "name": name} for name in names]}


async def test_an_answer_that_breaks_fails_whole_or_streamed(server: Running) -> None:
    broken = await post(server, input="fail")
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, "stage_failed")
    events = await streamed(server, input="fail")
    assert types(events)[-2:] == ["output_text.delta", "failed"]
    body = events[-1]["response"]
    assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
    assert "this answer fails" in body["error"]["message"]
    assert body["output"][0]["status"] == "incomplete"
    assert len(server.service.kept) == 0


async def test_of_its_tools_a_request_may_allow_some(server: Running, asked: list[EngineRequest]) -> None:
    date = {**TIME, "name": "date"}
    allowed = {**allowing("date"), "mode": "auto"}
    answer = await whole(server, input="tool date {}", tools=[TIME, date], tool_choice=allowed)
    assert (answer["output"][0]["type"], answer["output"][0]["name"]) == ("function_call", "date")
    assert (answer["tool_choice"], [tool["name"] for tool in answer["tools"]]) == (allowed, ["time", "date"])
    await whole(server, input="tool date {}", tools=[TIME, date], tool_choice={**allowed, "mode": "required"})
    assert [([tool.name for tool in one.offers], one.must_call) for one in asked] == [
        (["date"], False),
        (["date"], True),
    ]


async def test_an_answer_that_is_refused_at_once_is_an_ordinary_error(server: Running) -> None:
    refused = await post(server, tools=[TIME], tool_choice="required", stream=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_answer_and_nothing_is_kept(stream: bool, server: Running) -> None:
    asking = asyncio.create_task(post(server, input="long 5000", stream=stream), name="asking")
    await eventually(lambda: any(server._leased()))
    asking.cancel()
    await asyncio.wait([asking])
    await eventually(lambda: server.metric("parley_http_answers_total", status="cancelled") == 1)
    await server.empty()
    assert len(server.service.kept) == 0


def said(*parts: Any) -> dict[str, Any]:
    return {"input": [user(*parts)]}


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"input": None}, 400, "missing_required_parameter", "input"),
        ({"input": []}, 400, "missing_required_parameter", "input"),
        ({"input": 5}, 400, "invalid_value", "input"),
        ({"input": [5]}, 400, "invalid_value", "input.0"),
        ({"input": [{}]}, 400, "invalid_value", "input.0"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, 400, "invalid_value", "input.0"),
        ({"input": [{"role": "king", "content": "x"}]}, 400, "invalid_value", "input.0"),
        ({"input": [{"role": "assistant", "content": "x"}]}, 400, "invalid_value", "input.0.role"),
        (said({"type": "input_file", "file_id": "x"}), 400, "invalid_value", "input.0.content.0"),
        (
            said({"type": "input_image", "file_id": "x"}),
            400,
            "missing_required_parameter",
            "input.0.content.0.image_url",
        ),
        (said({"type": "input_image", "image_url": "http://127.0.0.1/x.png"}), 400, "invalid_value", None),
        (said({"type": "input_audio", "input_audio": {"data": "????"}}), 400, "invalid_value", None),
        ({"previous_response_id": "resp_none"}, 400, "previous_response_not_found", "previous_response_id"),
        ({"previous_response_id": 5}, 400, "invalid_value", "previous_response_id"),
        ({"previous_response_id": "x" * 201}, 400, "invalid_value", "previous_response_id"),
        ({"background": True}, 400, "unsupported_parameter", "background"),
        ({"conversation": "conv_1"}, 400, "unsupported_parameter", "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, 400, "unsupported_parameter", "prompt"),
        ({"moderation": {"model": "omni"}}, 400, "unsupported_parameter", "moderation"),
        ({"top_logprobs": 2}, 400, "unsupported_parameter", "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, 400, "unsupported_parameter", "include"),
        ({"text": {"format": {"type": "json_object"}}}, 400, "unsupported_value", "text.format"),
        ({"modalities": ["text", "audio"]}, 400, "unsupported_parameter", "modalities"),
        ({"tools": [{"type": "web_search"}]}, 400, "unsupported_value", "tools.0.type"),
        ({"tools": [{"type": "function"}]}, 400, "missing_required_parameter", "tools.0.name"),
        ({"tools": [{"type": "custom", "name": "x"}]}, 400, "unsupported_value", "tools.0.type"),
        ({"tool_choice": {"type": "mcp", "name": "x"}}, 400, "unsupported_value", "tool_choice.type"),
        ({"tool_choice": {"type": "function", "name": "x"}}, 400, "invalid_value", "tool_choice"),
        ({"tool_choice": "required"}, 400, "invalid_value", "tool_choice"),
        ({"tools": [TIME], "tool_choice": allowing("date")}, 400, "invalid_value", "tool_choice.tools.0.name"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": []}},
            400,
            "invalid_value",
            "tool_choice.tools",
        ),
        ({"max_output_tokens": 0}, 400, "invalid_value", "max_output_tokens"),
        ({"metadata": {"x": "y" * 513}}, 400, "invalid_value", "metadata.x"),
        ({"metadata": {str(i): "y" for i in range(17)}}, 400, "invalid_value", "metadata"),
        (said("x" * 1_000_000), 400, "context_length_exceeded", "input.0"),
        ({"instructions": "x" * 1_000_000}, 400, "context_length_exceeded", "instructions"),
        ({"tools": [{**TIME, "description": "x" * 1_000_000}]}, 400, "context_length_exceeded", "tools"),
        ({"input": "x" * 8_000_000}, 400, "context_length_exceeded", "input.0"),
        ({"input": [user("x")] * 2001}, 400, "invalid_value", "input"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_mistakes_are_one_clear_error(
    fields: Any, status: int, code: str, param: str | None, shared: Running
) -> None:
    for stream in (False, True):
        answer = await post(shared, **fields, stream=stream)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (status, code, param), error
        assert len(error["message"]) < 300


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"type": "web_search_call"}, "input.0: type or role 'web_search_call' is unknown; choose one of "),
        ({"role": "king"}, "input.0: type or role 'king' is unknown; choose one of 'system', 'developer', "),
        ({"type": ["message"]}, "input.0: type or role is missing."),
        (user({"type": "input_file"}), "type 'input_file' is unknown; choose one of 'input_text', "),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_item_that_is_not_known_is_told_truly(item: Any, told: str, shared: Running) -> None:
    answer = await post(shared, input=[item])
    assert told in answer.json()["error"]["message"]


@pytest.mark.asyncio(loop_scope="module")
async def test_deep_json_is_one_clear_error(shared: Running) -> None:
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    answer = await post(shared, input=deep)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.asyncio(loop_scope="module")
async def test_what_changes_nothing_is_taken(shared: Running) -> None:
    fields: dict[str, Any] = {
        "background": False, "conversation": None, "include": ["reasoning.encrypted_content"], "store": None,
        "parallel_tool_calls": False, "reasoning": {"effort": "high"}, "service_tier": "auto", "truncation": "auto",
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "user": "me", "prompt_cache_key": "k",
        "stream_options": {"include_obfuscation": True}, "tools": [], "tool_choice": "auto", "modalities": ["text"],
    }  # fmt: skip
    assert text(await whole(shared, **fields)) == "hello"


async def test_a_chain_of_many_messages_ends_in_a_sentence() -> None:
    async with running(script_spec(limits={"items": 4})) as server:
        first = await whole(server)
        second = await whole(server, previous_response_id=first["id"])
        refused = await post(server, previous_response_id=second["id"])
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")
        assert "4 messages" in refused.json()["error"]["message"]


async def test_texts_of_earlier_turns_count_with_the_new_ones(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "HISTORY", 0.001)  # 81 characters
    first = await whole(server, input="say:" + 50 * " ")
    refused = await post(server, input="say:" + 50 * " ", previous_response_id=first["id"])
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input.0")


async def test_an_answer_is_not_answered(server: Running) -> None:
    first = await whole(server)
    refused = await post(server, input=[], previous_response_id=first["id"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert "The last message is the assistant's" in refused.json()["error"]["message"]


async def test_pictures_of_earlier_turns_count_with_the_new_ones() -> None:
    async with running(script_spec(limits={"conversation_mb": 0.000004})) as server:
        first = await whole(server, input=[user(PICTURE, "say: x")])
        refused = await post(server, input=[user(PICTURE)], previous_response_id=first["id"])
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncGenerator[Running]:
    keys = keys_file(tmp_path, "alice: sk-alice-0123456789", "bob: sk-bob-0123456789ab")
    async with running(script_spec(keys_file=keys)) as one:
        yield one


ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789ab"


@pytest.mark.fault("S2.2")
async def test_a_response_belongs_to_its_key(locked: Running) -> None:
    made = (await post(locked, ALICE)).json()
    for status, code, fields in (
        (400, "previous_response_not_found", {"previous_response_id": made["id"]}),
        (404, "item_not_found", {"input": [{"id": made["output"][0]["id"]}, user("x")]}),
    ):
        refused = await post(locked, BOB, **fields)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
        assert (await post(locked, ALICE, **fields)).status_code == 200
    for method in ("GET", "DELETE"):
        assert await _asked(locked, method, made["id"], BOB) == 404
        assert await _asked(locked, method, made["id"], ALICE) == 200


async def _asked(server: Running, method: str, id: str, key: str) -> int:
    async with httpx.AsyncClient(base_url=server.http, headers={"authorization": f"Bearer {key}"}) as http:
        return (await http.request(method, f"{URL}/{id}")).status_code


async def test_what_a_withdrawn_key_left_is_gone(locked: Running, tmp_path: Path) -> None:
    await post(locked, ALICE)
    await post(locked, BOB)
    keys_file(tmp_path, "bob: sk-bob-0123456789ab")
    assert (await post(locked, ALICE)).status_code == 401
    assert len(locked.service.kept) == 1


async def test_a_response_takes_a_place_among_the_answers(server: Running) -> None:
    async with running(script_spec(limits={"answers": 1})) as small:
        long = asyncio.create_task(post(small, input="long 3000"), name="long")
        await eventually(lambda: any(small._leased()))
        refused = await post(small)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_full")
        long.cancel()
        await asyncio.wait([long])
        await small.empty()


@pytest.mark.fault("I9.2")
async def test_chains_are_bounded() -> None:
    limits = {"kept_responses": 20, "kept_mb": 0.03}
    async with running(script_spec(limits=limits)) as server, httpx.AsyncClient(base_url=server.http) as http:
        last: list[str | None] = [None] * 10
        for n in range(120):
            asked = {"model": "script", "input": "say: x", "previous_response_id": last[n % 10]}
            answer = await http.post(URL, json=asked)
            if answer.status_code == 400:
                assert answer.json()["error"]["code"] == "previous_response_not_found"
                last[n % 10] = None
                continue
            last[n % 10] = answer.json()["id"]
            assert len(server.service.kept) <= 20
            assert server.service.kept.held <= 30_000


def test_the_gate_is_strict() -> None:
    event = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0,
             "delta": "x", "logprobs": [], "sequence_number": 1}  # fmt: skip
    strictly(ResponseStreamEvent, event)
    for wrong in ({**event, "sequence_number": "1"}, {name: event[name] for name in event if name != "item_id"}):
        with pytest.raises(ValidationError):
            strictly(ResponseStreamEvent, wrong)
    with pytest.raises(AssertionError):
        strictly(ResponseStreamEvent, {**event, "status": "ours"})
