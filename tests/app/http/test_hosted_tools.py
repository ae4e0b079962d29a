"""MCP tools in ``/v1/responses``: listed, called, approved; every event and object against openai's types, strictly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp")

from openai.types.responses import Response, ResponseStreamEvent

from app.http import messages
from engine import Engine, TextPart, ToolCallPart, ToolResultPart
from engine import Request as EngineRequest
from tests.app.hosted_tools import library, server, serving
from tests.app.http.test_responses import text, types
from tests.app.mcp_rig import Liar, Library, liar, result, tool
from tests.app.openai_types import strictly
from tests.app.rig import LoudnessVad, Running, eventually, running, script_spec

__all__ = ["library", "server"]

CALL = 'tool shelf {"title": "Emma"}'
TIME: dict[str, Any] = {"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}}}
LISTED = ["output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"]
CALLED = ["output_item.added", "mcp_call.in_progress", *["mcp_call_arguments.delta"] * 3, "mcp_call_arguments.done"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[EngineRequest]:
    """The requests that the engine gets."""
    requests: list[EngineRequest] = []
    really = Engine.open

    def spied(self: Engine, request: EngineRequest, *more: Any) -> Any:
        requests.append(request)
        return really(self, request, *more)

    monkeypatch.setattr(Engine, "open", spied)
    return requests


async def post(server: Running, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http, timeout=60) as http:
        return await http.post("/v1/responses", json={"model": "script", "input": CALL, **body})


async def whole(server: Running, **body: Any) -> dict[str, Any]:
    answer = await post(server, **body)
    assert answer.status_code == 200, answer.text
    strictly(Response, answer.json())
    return answer.json()


async def streamed(server: Running, **body: Any) -> list[dict[str, Any]]:
    answer = await post(server, stream=True, **body)
    assert answer.status_code == 200, answer.text
    blocks = answer.text.split("\n\n")[:-1]
    events = [json.loads(block.split("\n")[1].removeprefix("data: ")) for block in blocks]
    for event in events:
        strictly(ResponseStreamEvent, event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def of(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [item for item in body["output"] if item["type"] == kind]


async def test_a_tool_is_listed_called_and_its_result_told(
    server: Running, library: Library, asked: list[EngineRequest]
) -> None:
    body = await whole(server, tools=[library.entry(authorization="sesame"), TIME])
    listing, call, said = body["output"]
    assert [one["name"] for one in listing["tools"]] == ["shelf", "lend", "archive"]
    assert listing["tools"][0]["annotations"] == {"readOnlyHint": True}
    assert (call["type"], call["status"], call["server_label"]) == ("mcp_call", "completed", "library")
    assert (call["arguments"], call["output"]) == ('{"title": "Emma"}', "Emma is on shelf nine")
    assert (text(body), said["status"]) == ("The tool says: Emma is on shelf nine", "completed")
    assert (library.calls, library.keys) == ([("shelf", {"title": "Emma"})], ["Bearer sesame"])
    first, second = asked
    assert [one.name for one in first.tools] == ["time", "shelf", "lend", "archive"]
    assert second.messages[0] == first.messages[0]
    assert [part for message in second.messages[1:] for part in message.parts] == [
        ToolCallPart("shelf", '{"title": "Emma"}', f"call_0_{first.id}"),
        ToolResultPart(f"call_0_{first.id}", "Emma is on shelf nine"),
    ]
    assert body["usage"]["output_tokens"] == 8


async def test_every_step_of_it_is_an_event(server: Running, library: Library) -> None:
    events = await streamed(server, tools=[library.entry()])
    assert types(events)[:16] == [
        "created", "in_progress", *LISTED, *CALLED, "mcp_call.completed", "output_item.done", "output_item.added",
        "content_part.added",
    ]  # fmt: skip
    assert types(events)[-1] == "completed"
    assert "".join(event["delta"] for event in events if "arguments.delta" in event["type"]) == '{"title": "Emma"}'
    assert text(events[-1]["response"]) == "The tool says: Emma is on shelf nine"


async def test_keys_are_told_to_nobody(server: Running, library: Library) -> None:
    entry = library.entry(authorization="sesame", headers={"x-key": "sesame"}, server_description="Books.")
    body = await whole(server, tools=[entry])
    async with httpx.AsyncClient(base_url=server.http) as http:
        kept = await http.get(f"/v1/responses/{body['id']}")
    assert body["tools"] == kept.json()["tools"] == [
        {
            "type": "mcp", "server_label": "library", "server_url": library.url, "server_description": "Books.",
            "require_approval": "never",
        }
    ]  # fmt: skip
    assert "sesame" not in json.dumps(body)


async def test_the_next_question_goes_on_from_the_result(
    server: Running, library: Library, asked: list[EngineRequest]
) -> None:
    first = await whole(server, tools=[library.entry()])
    await whole(server, input="say: again", previous_response_id=first["id"])
    parts = [part for message in asked[-1].messages for part in message.parts]
    assert parts[0] == TextPart(CALL)
    assert [type(part) for part in parts[1:]] == [ToolCallPart, ToolResultPart, TextPart, TextPart]
    items = [{"role": "user", "content": CALL}, *first["output"], {"role": "user", "content": "say: again"}]
    await whole(server, input=items, tools=[library.entry()])  # as clients send the history themselves
    again = [part for message in asked[-1].messages for part in message.parts]
    assert [type(part) for part in again] == [type(part) for part in parts]
    assert [part.output for part in again if isinstance(part, ToolResultPart)] == ["Emma is on shelf nine"]


async def test_a_conversation_is_as_long_as_its_prompt_and_not_as_its_items(
    server: Running, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of tools are in no later prompt, and a character is one in every script."""
    first = await whole(server, tools=[library.entry()])
    said = await whole(server, input=f"say: {'字' * 60}", previous_response_id=first["id"])
    monkeypatch.setattr(messages, "HISTORY", 0.005)  # 409 characters
    await whole(server, input="say: again", previous_response_id=said["id"])


async def test_a_tool_that_fails_is_told_to_the_thinker(server: Running, library: Library) -> None:
    events = await streamed(server, input='tool lend {"title": "Emma"}', tools=[library.entry()])
    assert "mcp_call.failed" in types(events)
    body = events[-1]["response"]
    (call,) = of(body, "mcp_call")
    assert (call["status"], call["output"], call["error"]["type"]) == ("failed", None, "mcp_tool_execution_error")
    assert text(body) == "The tool says: Error: Error executing tool lend: nobody may lend that"


async def test_a_call_waits_for_its_approval(server: Running, library: Library) -> None:
    tools = [library.entry(require_approval="always")]
    events = await streamed(server, tools=tools)
    asked = events[-1]["response"]
    (request,) = of(asked, "mcp_approval_request")
    assert types(events)[-3:] == ["output_item.added", "output_item.done", "completed"]
    assert (request["name"], request["arguments"]) == ("shelf", '{"title": "Emma"}')
    assert not library.calls
    response = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    done = await whole(server, input=[response], previous_response_id=asked["id"], tools=tools)
    (call,) = of(done, "mcp_call")
    assert (call["approval_request_id"], call["output"]) == (request["id"], "Emma is on shelf nine")
    assert text(done) == "The tool says: Emma is on shelf nine"
    history = [{"role": "user", "content": CALL}, *asked["output"], response]
    events = await streamed(server, input=history, tools=tools)
    assert text(events[-1]["response"]) == "The tool says: Emma is on shelf nine"
    assert library.calls == [("shelf", {"title": "Emma"})] * 2


@pytest.mark.parametrize("tools", [True, False])
async def test_an_approval_among_the_history_runs_nothing_again(server: Running, library: Library, tools: bool) -> None:
    """Clients that send all of the conversation send what was approved before, too; the tool may be gone by then."""
    offered = {"tools": [library.entry(require_approval="always")]}
    asked = await whole(server, **offered)
    (request,) = of(asked, "mcp_approval_request")
    response = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    history = [{"role": "user", "content": CALL}, *asked["output"], response]
    done = await whole(server, input=history, **offered)
    assert len(library.calls) == 1
    history = [*history, *done["output"], {"role": "user", "content": "say: again"}]
    assert text(await whole(server, input=history, **(offered if tools else {}))) == "again"
    assert len(library.calls) == 1


async def test_a_call_that_is_not_approved_is_not_made(server: Running, library: Library) -> None:
    tools = [library.entry(require_approval={"never": {"tool_names": ["lend"]}})]
    asked = await whole(server, tools=tools)
    (request,) = of(asked, "mcp_approval_request")
    denied = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False, "reason": "no"}
    body = await whole(server, input=[denied], previous_response_id=asked["id"], tools=tools)
    assert text(body) == "The tool says: The user did not approve this call: no"
    assert not library.calls
    for item, param in (
        ({**denied, "approval_request_id": "mcpr_none"}, "input.0.approval_request_id"),
        ({**denied, "approval_request_id": asked["output"][0]["id"]}, "input.0.approval_request_id"),
    ):
        refused = await post(server, input=[item], previous_response_id=asked["id"], tools=tools)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_an_approval_opens_no_tool_that_is_not_allowed(server: Running, library: Library) -> None:
    request = {
        "type": "mcp_approval_request", "id": "mcpr_x", "server_label": "library", "name": "lend", "arguments": "{}",
    }  # fmt: skip
    response = {"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": True}
    for tools in ([library.entry(allowed_tools=["shelf"])], [library.entry(server_label="other")], []):
        refused = await post(server, input=[{"role": "user", "content": "x"}, request, response], tools=tools)
        assert refused.status_code == 400, refused.text
    assert not library.calls


async def test_a_tool_that_is_not_allowed_is_not_called(server: Running, library: Library) -> None:
    body = await whole(server, input="tool lend {}", tools=[library.entry(allowed_tools=["shelf"])])
    assert [item["type"] for item in body["output"]] == ["mcp_list_tools", "function_call"]  # the client's, as ever
    assert not library.calls


async def test_calls_of_both_kinds_end_the_response(server: Running, library: Library) -> None:
    body = await whole(server, input=f"{CALL} ; time {{}}", tools=[library.entry(), TIME])
    assert [item["type"] for item in body["output"]] == ["mcp_list_tools", "mcp_call", "function_call"]
    assert library.calls


async def test_calls_are_bounded(server: Running, library: Library, asked: list[EngineRequest]) -> None:
    body = await whole(server, input=" ; ".join([CALL, *["shelf {}"] * 3]), tools=[library.entry()], max_tool_calls=2)
    assert [call["status"] for call in of(body, "mcp_call")] == ["completed", "failed", "failed", "failed"]
    assert of(body, "mcp_call")[2]["error"]["message"] == "The limit of tool calls for this response is reached."
    assert len(library.calls) == 1  # the second one's arguments lack a title
    assert [len(request.tools) for request in asked] == [3, 0]  # it has to answer with what it knows


async def test_a_thinker_that_must_call_calls_once(server: Running, library: Library) -> None:
    body = await whole(server, tools=[library.entry()], tool_choice="required")
    assert text(body) == "The tool says: Emma is on shelf nine"


async def test_approved_calls_that_use_up_the_limit_leave_nothing_that_must_be_called(
    server: Running, library: Library
) -> None:
    tools = [library.entry(require_approval="always")]
    asked = await whole(server, tools=tools)
    (request,) = of(asked, "mcp_approval_request")
    response = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    more: dict[str, Any] = {"tools": tools, "tool_choice": "required", "max_tool_calls": 1}
    done = await whole(server, input=[response], previous_response_id=asked["id"], **more)
    assert text(done) == "The tool says: Emma is on shelf nine"
    assert len(library.calls) == 1


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ({"server_url": "https://other.example/mcp"}, "tools.0.server_url"),
        ({"server_url": None}, "tools.0.server_url"),
        ({"server_label": 5}, "tools.0.server_label"),
        ({"connector_id": "connector_gmail"}, "tools.0.connector_id"),
        ({"headers": {"host": "inside"}}, "tools.0.headers"),
    ],
)
async def test_what_the_operator_did_not_name_is_refused(
    server: Running, library: Library, entry: Any, param: str
) -> None:
    refused = await post(server, tools=[library.entry(**entry)])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert not library.calls


async def test_too_many_servers_and_the_same_twice_are_refused(server: Running, library: Library) -> None:
    for entries in ([library.entry()] * 2, [library.entry(server_label=f"s{n}") for n in range(9)]):
        refused = await post(server, tools=entries)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")


async def test_by_default_there_are_none(library: Library) -> None:
    async with running(script_spec(), vad=LoudnessVad) as server:
        refused = await post(server, tools=[library.entry()])
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_value")


async def test_a_server_that_lists_nothing_fails_the_response(asked: list[EngineRequest]) -> None:
    async with (
        liar(lambda message: result(message, tools=[tool(description="x" * (2 << 20))])) as one,
        serving([{"url": one.url, "private": True}]) as server,
    ):
        entry = {"type": "mcp", "server_label": "liar", "server_url": one.url}
        refused = await post(server, tools=[entry])
        assert (refused.status_code, refused.json()["error"]["code"]) == (424, "external_connector_error")
        assert "more than 1024 kB" in refused.json()["error"]["message"]
        events = await streamed(server, tools=[entry])
        assert types(events) == [
            "created", "in_progress", "output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.failed",
            "output_item.done", "failed",
        ]  # fmt: skip
        assert "more than 1024 kB" in events[-2]["item"]["error"]
    assert not asked


async def test_a_client_that_leaves_ends_the_call() -> None:
    begun = asyncio.Event()

    async def never() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    def reply(message: dict[str, Any]) -> Any:
        return result(message, tools=[tool("shelf")]) if message["method"] == "tools/list" else never()

    async with liar(reply) as one, serving([{"url": one.url, "private": True}]) as server:
        task = asyncio.create_task(post(server, tools=[at(one)]))
        await begun.wait()
        assert server.service.tool_servers.visits == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: server.service.tool_servers.visits == 0)


def working(work: Callable[[], Awaitable[None]]) -> Callable[[dict[str, Any]], Any]:
    """The replies of a server whose one tool does some work before it answers."""

    async def called(message: dict[str, Any]) -> bytes:
        await work()
        return result(message, content=[{"type": "text", "text": "done"}])

    def reply(message: dict[str, Any]) -> Any:
        return result(message, tools=[tool("shelf")]) if message["method"] == "tools/list" else called(message)

    return reply


async def test_an_answer_keeps_its_place_while_its_tool_runs() -> None:
    """One that is refused afterwards is asked for again, and its tool runs twice."""
    others: list[int] = []

    async def work() -> None:
        others.append((await post(server, input="say: me too")).status_code)

    async with liar(working(work)) as one, serving([{"url": one.url, "private": True}], answers=1) as server:
        assert text(await whole(server, tools=[at(one)])) == "The tool says: done"
    assert others == [503]


async def test_an_answer_whose_tool_ran_waits_for_slots_as_long_as_it_takes() -> None:
    taken = AsyncExitStack()

    async def work() -> None:
        await taken.enter_async_context(server.service.admission.http_slots.hold(lambda: {"thinker": 1}))

    limits = {"answers_share": 1e-9, "wait_s": 1e-9}
    async with liar(working(work)) as one, serving([{"url": one.url, "private": True}], **limits) as server:
        asking = asyncio.create_task(whole(server, tools=[at(one)]))
        await eventually(lambda: asking.done() or server.metric("parley_http_waiting") == 1)
        await taken.aclose()
        assert text(await asking) == "The tool says: done"


async def test_an_answer_whose_tool_ran_ends_also_while_the_server_drains() -> None:
    async def work() -> None:
        server.server.leave()
        await server.service.hosts.draining.wait()

    async with liar(working(work)) as one, serving([{"url": one.url, "private": True}]) as server:
        assert text(await whole(server, tools=[at(one)])) == "The tool says: done"


async def test_an_answer_whose_tool_ran_waits_for_a_stage_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as the engine does; refused at once, its client would ask again."""
    states = list[str]()

    async def work() -> None:
        monkeypatch.setattr(
            type(server.service.engine_host), "state", property(lambda self: states.append("") or "unavailable")
        )

    async with liar(working(work)) as one, serving([{"url": one.url, "private": True}]) as server:
        assert text(await whole(server, tools=[at(one)])) == "The tool says: done"
        assert states
        monkeypatch.undo()


def at(one: Liar) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "liar", "server_url": one.url, "require_approval": "never"}


async def test_too_many_visits_at_a_time_are_refused(
    server: Running, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.mcp.tool_server.MOST_VISITS", 0)
    refused = await post(server, tools=[library.entry()])
    assert refused.status_code == 424
    assert "Too many requests to MCP servers" in refused.json()["error"]["message"]


async def test_an_answer_is_one_however_many_requests_it_takes(server: Running, library: Library) -> None:
    before = server.metric("parley_http_answers_total", status="completed")
    body = await whole(server, tools=[library.entry()])
    assert "mcp_call" in types(body["output"])
    assert server.metric("parley_http_answers_total", status="completed") == before + 1
