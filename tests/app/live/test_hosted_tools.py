"""MCP tools of a Live session's backend: listed, called, approved; every event strictly of the SDK's types."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("mcp")

from typing import Any

from tests.app.hosted_tools import library, server
from tests.app.live.caller import LiveClient, dialled
from tests.app.mcp_rig import Library
from tests.app.rig import Running

__all__ = ["library", "server"]

CALL = 'tool shelf {"title": "Emma"}'
LISTED = [
    "response.output_item.added", "response.mcp_list_tools.in_progress", "response.mcp_list_tools.completed",
    "response.output_item.done",
]  # fmt: skip


def backend(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "responses", "responses": {"model": "gpt-5", "tools": list(tools)}}


def types(client: LiveClient) -> list[str]:
    return [event["type"] for event in client.inner()]


def items(client: LiveClient) -> list[dict[str, Any]]:
    return [event["item"] for event in client.inner() if event["type"] == "response.output_item.done"]


async def test_a_tool_is_called_and_its_result_is_spoken(server: Running, library: Library) -> None:
    async with dialled(server) as client:
        entry = library.entry(authorization="sesame", headers={"x-key": "sesame"})
        started = await client.start(delegation=backend(entry))
        assert "sesame" not in json.dumps(started)
        await client.until("response.event", "response.mcp_list_tools.completed")
        await client.say(CALL)
        created = (await client.until("session.delegation.created"))["delegation"]
        await client.until("response.event", "response.completed")
        assert types(client)[:4] == LISTED
        first = types(client)[4:]
        called = [type for type in first if "mcp_call" in type]
        assert called[0] == "response.mcp_call.in_progress"
        assert called[-2:] == ["response.mcp_call_arguments.done", "response.mcp_call.completed"]
        (listing, call) = items(client)
        assert [tool["name"] for tool in listing["tools"]] == ["shelf", "lend", "archive"]
        assert (call["name"], call["output"], call["error"]) == ("shelf", "Emma is on shelf nine", None)
        await client.until("response.event", "response.created")
        await client.said("shelf nine")
        await client.until("response.event", "response.completed")
        assert {event["delegation_id"] for event in client.of("response.event")[4:]} == {created["id"]}
        assert library.keys == ["Bearer sesame"]


async def test_a_tool_that_fails_is_told(server: Running, library: Library) -> None:
    async with dialled(server) as client:
        await client.start(delegation=backend(library.entry()))
        await client.until("response.event", "response.mcp_list_tools.completed")
        await client.say('tool lend {"title": "Emma"}')
        await client.until("response.event", "response.mcp_call.failed")
        await client.until("response.event", "response.completed")
        assert items(client)[-1]["error"]["type"] == "mcp_tool_execution_error"


@pytest.mark.parametrize("approve", [True, False])
async def test_a_tool_waits_for_its_approval(approve: bool, server: Running, library: Library) -> None:
    async with dialled(server) as client:
        await client.start(delegation=backend(library.entry(require_approval="always")))
        await client.until("response.event", "response.mcp_list_tools.completed")
        await client.say(CALL)
        await client.until("response.event", "response.completed")
        request = items(client)[-1]
        assert (request["type"], json.loads(request["arguments"])) == ("mcp_approval_request", {"title": "Emma"})
        assert library.calls == []
        item = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
        await client.send("response.item.create", item=item)
        await client.send("response.create")
        await client.until("response.event", "response.created")
        await client.until("response.event", "response.completed")
        if approve:
            (call,) = [one for one in items(client) if one["type"] == "mcp_call"]
            assert (call["approval_request_id"], call["output"]) == (request["id"], "Emma is on shelf nine")
            await client.said("shelf nine")
        assert len(library.calls) == approve


async def test_a_server_that_nobody_configured_is_told_as_failed(server: Running) -> None:
    async with dialled(server) as client:
        other = {"type": "mcp", "server_label": "other", "server_url": "http://127.0.0.1:9/mcp"}
        await client.start(delegation=backend(other))
        await client.say("tool get_weather {}")
        await client.until("response.event", "response.mcp_list_tools.failed")
