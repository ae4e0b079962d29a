"""What this server does not do, over the wire: hosted tools, and the beta. Nothing is lost, and it is said once."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.app.rig import Client, Running, talking

LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
FILES = {"type": "mcp", "server_label": "files", "server_url": "https://files.example", "require_approval": "never"}
LISTED = ["conversation.item.added", "mcp_list_tools.in_progress", "mcp_list_tools.failed", "conversation.item.done"]


async def test_a_hosted_tool_fails_alone(client: Client) -> None:
    session = await client.configure(instructions="Be brief.", tools=[FILES, LOOK])
    assert session["instructions"] == "Be brief."
    assert [tool["name"] for tool in session["tools"]] == ["look"]
    await client.until("conversation.item.done")
    assert client.types()[-5:] == ["session.updated", *LISTED]
    added, begun, failed, _ = client.events[-4:]
    assert added["item"] == {"id": failed["item_id"], "type": "mcp_list_tools", "server_label": "files", "tools": []}
    assert begun["item_id"] == failed["item_id"]
    calls = await client.ask("tool look {}")
    assert [item["type"] for item in calls["output"]] == ["function_call"]
    assert client.of("conversation.item.added")[1]["previous_item_id"] == failed["item_id"]
    await client.send("conversation.item.retrieve", item_id=failed["item_id"])  # as OpenAI's agents for JavaScript do
    assert (await client.until("conversation.item.retrieved"))["item"] == added["item"]


async def test_a_client_that_names_the_server_again_is_told_once(client: Client) -> None:
    """Clients repeat all their settings whenever one changes."""
    for _ in range(3):
        await client.configure(tools=[FILES, LOOK])
    await client.configure(tools=[{**FILES, "server_label": "mail"}])
    await client.alive()
    assert [event["item"]["server_label"] for event in client.of("conversation.item.done")[:2]] == ["files", "mail"]
    assert len(client.of("mcp_list_tools.failed")) == 2


async def test_where_there_is_no_room_for_a_list_the_session_goes_on(serve_with: Any) -> None:
    many: Any = {"tools": [{**FILES, "server_label": f"{n}"} for n in range(9)]}
    async with serve_with(limits={"items": 3}) as server, httpx.AsyncClient(base_url=server.http) as http:
        secret = (await http.post("/v1/realtime/client_secrets", json={"session": many})).json()["value"]
        async with talking(server, additional_headers={"Authorization": f"Bearer {secret}"}) as client:
            assert (await client.configure(instructions="Kept.", **many))["instructions"] == "Kept."
            assert len(client.of("mcp_list_tools.failed")) == 3
            assert not client.of("error")


async def test_one_answers_hosted_tool_fails_alone_too(client: Client) -> None:
    response = await client.ask("say: one two", tools=[FILES], tool_choice={"type": "mcp", "server_label": "files"})
    assert response["status"] == "completed"
    assert [type for type in client.types() if type in LISTED[1:3]] == LISTED[1:3]
    assert client.types().index("mcp_list_tools.failed") < client.types().index("response.created")


async def test_a_tool_of_an_unknown_kind_is_refused_and_the_rest_holds(client: Client) -> None:
    tools = [LOOK, {"type": "web_search"}]
    await client.send(
        "session.update", session={"type": "realtime", "instructions": "Kept.", "tools": tools}, event_id="e1"
    )
    session = (await client.until("session.updated"))["session"]
    assert (session["instructions"], len(session["tools"])) == ("Kept.", 1)
    error = await client.error()
    assert (error["param"], error["event_id"]) == ("session.tools[1].type", "e1")
    response = await client.ask("say: one two", tools=tools)
    assert response["status"] == "completed"
    assert client.of("error")[-1]["error"]["param"] == "response.tools[1].type"


async def test_what_a_secrets_session_asks_for_is_treated_alike(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        asked: dict[str, Any] = {"session": {"instructions": "Be brief.", "tools": [FILES, LOOK]}}
        secret = (await http.post("/v1/realtime/client_secrets", json=asked)).json()
        odd = await http.post("/v1/realtime/client_secrets", json={"session": {"tools": [{"type": "web_search"}]}})
        old = await http.post("/v1/realtime/client_secrets", json={"session": {"voice": "alloy"}})
    assert len(secret["session"]["tools"]) == 1
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "session.tools[0].type")
    assert (old.status_code, old.json()["error"]["code"]) == (400, "beta_api_shape_disabled")
    async with talking(server, additional_headers={"Authorization": f"Bearer {secret['value']}"}) as client:
        await client.until("conversation.item.done")
        assert client.types() == ["session.created", *LISTED]
        assert client.events[0]["session"]["instructions"] == "Be brief."


async def test_a_session_in_the_betas_shape_is_refused_and_goes_on(client: Client) -> None:
    await client.send("session.update", session={"modalities": ["text"], "voice": "alloy", "instructions": "Lost."})
    error = await client.error()
    assert (error["code"], error["param"]) == ("beta_api_shape_disabled", "session.modalities")
    assert (await client.configure())["instructions"] == ""
    await client.send("response.create", response={"modalities": ["text"]})
    assert (await client.error())["param"] == "response.modalities"
    await client.alive()


@pytest.mark.parametrize(
    "how",
    [
        {"additional_headers": {"OpenAI-Beta": "realtime=v1"}},
        {"additional_headers": {"openai-beta": "assistants=v2, realtime=v1"}},
        {"subprotocols": ["realtime", "openai-insecure-api-key.sk-none", "openai-beta.realtime-v1"]},
    ],
)
async def test_a_client_of_the_beta_is_told_so_and_left(server: Running, how: Any) -> None:
    """As the hosted service does it: an event in the place of session.created, then close code 4000."""
    async with connect(server.ws, **how) as socket:
        event = json.loads(await socket.recv())
        assert (event["type"], event["error"]["code"]) == ("error", "beta_api_shape_disabled")
        assert "GA format" in event["error"]["message"]
        await socket.wait_closed()
        assert (socket.close_code, socket.close_reason) == (4000, "invalid_request_error.beta_api_shape_disabled")
    assert server.metric("parley_sessions") == 0


async def test_a_call_of_the_beta_is_refused_and_other_betas_are_not_minded(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http, headers={"OpenAI-Beta": "realtime=v1"}) as http:
        refused = await http.post("/v1/realtime/calls", content="v=0", headers={"Content-Type": "application/sdp"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "beta_api_shape_disabled")
    async with talking(server, additional_headers={"OpenAI-Beta": "assistants=v2"}) as client:
        await client.alive()
