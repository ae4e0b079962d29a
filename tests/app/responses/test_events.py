"""A response as it grows, chunk by chunk: each event is one of openai's types, and tells what the object then holds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent

from app.http.question import EngineCall
from app.http.response_teller import ResponseTeller
from app.http_errors import HttpRefusal
from app.mcp import CallResult, HostedTool, ToolServer, ToolServerEntry
from app.mcp.tool_server import Visits
from app.responses.events import Event, GrowingResponse
from app.responses.figures import Figures
from app.settings import McpServer
from engine import (
    Audio,
    Codes,
    Output,
    Request,
    Text,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallPart,
    Transcript,
    Usage,
)
from tests.app.openai_types import strictly

HEAD: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True, "tools": [],
    "tool_choice": "auto",
}  # fmt: skip


def told(chunks: list[Output], finish: Any = "stop") -> tuple[list[Event], GrowingResponse]:
    growing = GrowingResponse(HEAD)
    events = [event for chunk in chunks for event in growing.take(chunk)]
    events += growing.end(Figures(finish=finish))
    return events, growing


def types(events: list[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def rebuilt(events: list[Event]) -> list[dict[str, Any]]:
    """The items as a client makes them of the events; whatever is out of order fails."""
    open_: dict[str, dict[str, Any]] = {}
    items: list[dict[str, Any]] = []
    assert types(events)[:2] == ["created", "in_progress"]
    for number, event in enumerate(events):
        strictly(ResponseStreamEvent, event)
        assert event["sequence_number"] == number
        match types([event])[0]:
            case "output_item.added":
                assert event["output_index"] == len(items)
                items.append({"id": event["item"]["id"], "said": "", "parts": 0})
                open_[items[-1]["id"]] = items[-1]
            case "content_part.added":
                open_[event["item_id"]]["parts"] += 1
            case "output_text.delta":
                assert open_[event["item_id"]]["parts"] == 1
                open_[event["item_id"]]["said"] += event["delta"]
            case "function_call_arguments.delta":
                open_[event["item_id"]]["said"] += event["delta"]
            case "output_text.done":
                assert event["text"] == open_[event["item_id"]]["said"]
            case "function_call_arguments.done":
                assert event["arguments"] == open_[event["item_id"]]["said"]
            case "content_part.done":
                assert event["part"]["text"] == open_[event["item_id"]]["said"]
            case "output_item.done":
                open_.pop(event["item"]["id"])
                items[event["output_index"]] = event["item"]
            case _:
                pass
    assert not open_
    assert events[-1]["response"]["output"] == items
    return items


ARGUMENTS = ["", "{", '"a"', "}"]
CHUNKS = st.one_of(
    st.builds(Text, st.sampled_from(["a ", "b"]), st.just(0)),
    st.builds(ToolCallDelta, st.sampled_from(["c1", "c2"]), st.just("f"), st.sampled_from(ARGUMENTS)),
    st.builds(ToolCall, st.sampled_from(["c1", "c2", "c3"]), st.just("f"), st.just("{}")),
    st.builds(Transcript, st.just("x"), st.booleans()),
)


@given(chunks=st.lists(CHUNKS, max_size=12), finish=st.sampled_from(["stop", "length", "tool"]))
def test_whatever_an_answer_is_made_of_its_events_are_in_order(chunks: list[Output], finish: str) -> None:
    over = {chunk.call_id: n for n, chunk in reversed([*enumerate(chunks)]) if isinstance(chunk, ToolCall)}
    chunks = [
        chunk for n, chunk in enumerate(chunks)
        if not isinstance(chunk, ToolCallDelta) or n < over.get(chunk.call_id, len(chunks))
    ]  # fmt: skip
    events, growing = told(chunks, finish)
    items = rebuilt(events)
    strictly(Response, growing.body())
    said = "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))
    assert "".join(one["content"][0]["text"] for one in items if one["type"] == "message") == said
    assert events[-1]["type"] == ("response.incomplete" if finish == "length" else "response.completed")


def test_a_call_ends_the_text_before_it() -> None:
    events, growing = told([Text("a", 0), ToolCallDelta("c", "f", "{}"), ToolCall("c", "f", "{}"), Text("b", 1)])
    assert types(events)[5:9] == ["output_text.done", "content_part.done", "output_item.done", "output_item.added"]
    assert [item["type"] for item in rebuilt(events)] == ["message", "function_call", "message"]
    (said,) = growing.messages()
    assert said.parts == (TextPart("a"), ToolCallPart("f", "{}", "c"), TextPart("b"))


def test_a_call_that_comes_whole_has_one_delta() -> None:
    (call,) = rebuilt(told([ToolCall("c", "f", '{"a": 1}')])[0])
    assert (call["name"], call["arguments"], call["status"]) == ("f", '{"a": 1}', "completed")


def test_a_call_that_was_cut_off_is_told_and_is_no_turn() -> None:
    events, growing = told([Text("a", 0), ToolCallDelta("c", "f", '{"a')], finish="length")
    assert rebuilt(events)[1]["status"] == "incomplete"
    assert [message.parts for message in growing.messages()] == [(TextPart("a"),)]


def test_an_answer_of_nothing_is_a_response_too() -> None:
    nothing: list[Output] = [Usage(1, 0), Audio(np.zeros(4, np.float32)), Codes(np.zeros((1, 1), np.int16))]
    events, growing = told(nothing)
    assert types(events) == ["created", "in_progress", "completed"]
    assert growing.messages() == ()


@pytest.mark.parametrize(
    ("status", "code"), [(400, "invalid_prompt"), (429, "rate_limit_exceeded"), (503, "server_error")]
)
async def test_a_failure_has_a_code_that_the_types_know(status: int, code: str) -> None:
    written: list[bytes] = []

    async def write(piece: bytes) -> None:
        written.append(piece)

    asked = EngineCall(Request(id="resp_1", session="sess_1", messages=()), (), (), "nano")
    teller = ResponseTeller(HEAD, None, asked, write)
    await teller.take(Text("a", 0))
    written.clear()
    await teller.fail(HttpRefusal(status, "ours", "It broke."))
    name, data = written[0].decode().rstrip().split("\n")
    event = json.loads(data.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    strictly(ResponseStreamEvent, event)
    assert event["response"]["error"] == {"code": code, "message": "It broke."}
    assert event["response"]["output"][0]["status"] == "incomplete"


async def test_a_second_call_with_the_id_of_a_finished_one_is_a_call_of_its_own() -> None:
    """Some servers number the calls of each answer from the start, and a response can take several answers."""
    entry = ToolServerEntry("library", "http://127.0.0.1:1", require_approval="never")
    library = ToolServer(entry, McpServer(url="http://127.0.0.1:1"), Visits())
    growing = GrowingResponse(HEAD)
    growing.hosted = {"shelf": HostedTool(library, "shelf", "shelf", "", {}, {}, 0)}
    growing.take(ToolCall("call_0", "shelf", '{"title": "Emma"}'))
    growing.ran(growing.due[0], CallResult("nine"))
    events = growing.take(ToolCall("call_0", "shelf", '{"title": "Persuasion"}'))
    assert types(events) == [
        "output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done",
    ]  # fmt: skip
    assert [call.arguments for call in growing.due] == ['{"title": "Persuasion"}']
    assert [item["arguments"] for item in growing.body()["output"]] == ['{"title": "Emma"}', '{"title": "Persuasion"}']
