"""MCP tools in a Realtime session, over the wire: listed, called, approved; every event against openai's types."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("mcp")

from openai.types.realtime import ConversationItem
from openai.types.realtime.realtime_server_event import RealtimeServerEvent

from tests.app.hosted_tools import library, server, serving
from tests.app.mcp_rig import Library, liar, result, tool
from tests.app.openai_types import strictly
from tests.app.rig import Client, Running, eventually, talking

__all__ = ["library", "server"]

CALL = 'tool shelf {"title": "Emma"}'
LISTED = ["conversation.item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "conversation.item.done"]
CALLED = [
    "response.output_item.added", "conversation.item.added", *["response.mcp_call_arguments.delta"] * 3,
    "response.mcp_call_arguments.done", "response.output_item.done",
]  # fmt: skip
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
ITEMS = ("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response")


@pytest.fixture
async def client(server: Running) -> AsyncGenerator[Client]:
    """Whatever it was sent of MCP tools was of the very types."""
    async with talking(server) as one:
        yield one
    checked(one)


def checked(client: Client) -> None:
    seen = 0
    for event in client.events:
        kind = event.get("item", {}).get("type")
        if "mcp" in event["type"] or kind in ITEMS:
            strictly(RealtimeServerEvent, event)
            seen += 1
        if kind in ITEMS:
            strictly(ConversationItem, event["item"])
    assert seen


async def listed(client: Client, *entries: dict[str, Any], **session: Any) -> dict[str, Any]:
    """The session with these tools, once they are listed."""
    known = await client.configure(output_modalities=["text"], tools=list(entries), **session)
    await client.until("mcp_list_tools.completed")
    await client.until("conversation.item.done")
    return known


def item(client: Client, kind: str) -> dict[str, Any]:
    """The last item of a kind, as it was done."""
    return [one["item"] for one in client.of("conversation.item.done") if one["item"]["type"] == kind][-1]


async def spoken(client: Client) -> str:
    await client.send("response.create")
    done = await client.until("response.done")
    return "".join(part["text"] for part in done["response"]["output"][-1]["content"])


async def test_a_tool_is_listed_called_and_its_result_spoken_of(client: Client, library: Library) -> None:
    session = await listed(client, library.entry(authorization="sesame", headers={"x-key": "sesame"}), LOOK)
    assert client.types()[-5:] == ["session.updated", *LISTED]
    assert [one["name"] for one in item(client, "mcp_list_tools")["tools"]] == ["shelf", "lend", "archive"]
    assert [one["type"] for one in session["tools"]] == ["function", "mcp"]
    assert "sesame" not in json.dumps(client.events)
    done = await client.ask(CALL)
    await client.until("response.mcp_call.completed")
    await client.until("conversation.item.done")
    types = client.types()
    begin = types.index("response.created")
    mcp = [type for type in types[begin:] if "mcp" in type or "item" in type]
    assert mcp == [*CALLED, "response.mcp_call.in_progress", "response.mcp_call.completed", "conversation.item.done"]
    (call,) = done["output"]
    assert (call["type"], call["name"], call["server_label"]) == ("mcp_call", "shelf", "library")
    assert item(client, "mcp_call") == {**call, "output": "Emma is on shelf nine"}
    assert "".join(one["delta"] for one in client.of("response.mcp_call_arguments.delta")) == '{"title": "Emma"}'
    assert (library.calls, library.keys) == ([("shelf", {"title": "Emma"})], ["Bearer sesame"])
    assert await spoken(client) == "The tool says: Emma is on shelf nine"


async def test_it_is_spoken_aloud_to_who_speaks(client: Client, library: Library) -> None:
    await client.configure(tools=[library.entry(parley={"speech": False})])
    await client.until("mcp_list_tools.completed")
    await client.ask(CALL)
    await client.until("response.mcp_call.completed")
    await client.send("response.create")
    done = await client.until("response.done")
    assert done["response"]["output"][0]["content"][0]["transcript"] == "The tool says: Emma is on shelf nine"
    assert client.audio_s() > 0.2


async def test_a_call_that_fails_is_told(client: Client, library: Library) -> None:
    await listed(client, library.entry())
    await client.ask('tool lend {"title": "Emma"}')
    await client.until("response.mcp_call.failed")
    await client.until("conversation.item.done")
    error = item(client, "mcp_call")["error"]
    assert (error["type"], error["message"]) == (
        "tool_execution_error",
        "Error executing tool lend: nobody may lend that",
    )
    assert await spoken(client) == "The tool says: Error: Error executing tool lend: nobody may lend that"


async def test_a_call_waits_for_its_approval(client: Client, library: Library) -> None:
    await listed(client, library.entry(require_approval="always"))
    done = await client.ask(CALL)
    (request,) = done["output"]
    assert (request["type"], request["arguments"]) == ("mcp_approval_request", '{"title": "Emma"}')
    assert request == item(client, "mcp_approval_request")
    assert not library.calls
    response = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    await client.send("conversation.item.create", item=response, previous_item_id=request["id"])
    await client.until("response.mcp_call.completed")
    await client.until("conversation.item.done")
    call = item(client, "mcp_call")
    assert (call["approval_request_id"], call["output"]) == (request["id"], "Emma is on shelf nine")
    assert await spoken(client) == "The tool says: Emma is on shelf nine"
    for again in (response, {**response, "approval_request_id": "mcpr_none"}):
        await client.send("conversation.item.create", item=again)
        assert (await client.error())["param"] == "item.approval_request_id"
    assert len(library.calls) == 1


async def test_a_call_that_is_not_approved_is_not_made(client: Client, library: Library) -> None:
    await listed(client, library.entry(require_approval="always"))
    (request,) = (await client.ask(CALL))["output"]
    denied = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False, "reason": "no"}
    await client.send("conversation.item.create", item=denied)
    assert await spoken(client) == "The tool says: The user did not approve this call: no"
    assert not library.calls


async def test_tools_come_and_go_with_the_settings(client: Client, library: Library) -> None:
    await listed(client, library.entry())
    for _ in range(2):  # clients repeat all their settings whenever one changes
        await client.configure(tools=[library.entry()])
    await client.configure(instructions="Be brief.")
    await listed(client, library.entry(allowed_tools=["lend"]))
    assert [one["name"] for one in item(client, "mcp_list_tools")["tools"]] == ["lend"]
    assert len(client.of("mcp_list_tools.completed")) == 2
    assert [one["type"] for one in (await client.ask(CALL))["output"]] == ["function_call"]  # the client's, as ever
    await client.configure(tools=[])
    assert [one["type"] for one in (await client.ask("tool lend {}"))["output"]] == ["function_call"]
    assert not library.calls


async def test_an_answer_may_have_other_tools(client: Client, library: Library) -> None:
    await listed(client, library.entry())
    for tools, kind in (([LOOK], "function_call"), ([library.entry()], "mcp_call")):
        assert [one["type"] for one in (await client.ask(CALL, tools=tools))["output"]] == [kind]
    aside = await client.ask(CALL, conversation="none")
    assert [one["type"] for one in aside["output"]] == ["function_call"]  # a result would have no place


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"headers": {"host": "inside"}}, "session.tools[0].headers"),
        ({"server_label": "a b"}, "session.tools[0].server_label"),
        ({"require_approval": 7}, "session.tools[0].require_approval"),
    ],
)
async def test_an_entry_that_says_nothing_sensible_is_refused(
    server: Running, library: Library, fields: Any, param: str
) -> None:
    async with talking(server) as client:
        await client.send("session.update", session={"instructions": "Lost.", "tools": [library.entry(**fields)]})
        assert (await client.error())["param"] == param
        assert (await client.configure())["instructions"] == ""


async def test_a_server_that_the_operator_did_not_name_is_not_asked(client: Client, library: Library) -> None:
    other = library.entry(server_label="other", server_url=library.url + "x")
    session = await listed(client, library.entry(), other)
    assert [one["server_label"] for one in session["tools"]] == ["library"]
    assert len(client.of("mcp_list_tools.failed")) == 1
    await client.alive()


async def test_a_hostile_server_fails_alone() -> None:
    async with (
        liar(lambda message: result(message, tools=[tool(description="x" * (2 << 20))])) as one,
        serving([{"url": one.url, "private": True}]) as server,
        talking(server) as client,
    ):
        await client.configure(tools=[{"type": "mcp", "server_label": "liar", "server_url": one.url}])
        await client.until("mcp_list_tools.failed")
        await client.until("conversation.item.done")
        assert item(client, "mcp_list_tools")["tools"] == []
        await client.alive()
        checked(client)


async def test_the_session_goes_on_while_a_call_hangs_and_takes_it_along_when_it_ends() -> None:
    begun = asyncio.Event()

    async def never() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    def reply(message: dict[str, Any]) -> Any:
        return result(message, tools=[tool("shelf")]) if message["method"] == "tools/list" else never()

    async with liar(reply) as one, serving([{"url": one.url, "private": True, "timeout_s": 600.0}]) as server:
        entry = {"type": "mcp", "server_label": "liar", "server_url": one.url, "require_approval": "never"}
        async with talking(server) as client:
            await listed(client, entry)
            await client.ask(CALL)
            await begun.wait()
            await client.alive()
            for _ in range(20):  # more than may go on at a time
                await client.ask(CALL)
            await client.alive()
            assert len(client.of("response.mcp_call.failed")) == 5
            assert server.service.tool_servers.visits == 16
        await eventually(lambda: server.service.tool_servers.visits == 0)
        await server.empty()


async def test_a_call_that_the_user_interrupts_is_not_made(server: Running, library: Library) -> None:
    async with talking(server) as client:
        await listed(client, library.entry())
        long = json.dumps({"title": "x" * 4000})
        await client.say(f"tool shelf {long}")
        await client.send("response.create")
        await client.until("response.mcp_call_arguments.delta")
        await client.send("response.cancel")
        await client.until("response.done")
        assert item(client, "mcp_call")["error"]["message"] == "The response was cut off."
        await client.alive()
        checked(client)
    assert not library.calls
