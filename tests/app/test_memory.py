"""Memory across sessions, over real sockets: stored by the model and over HTTP, kept for each key, shown, deleted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import Request, TextPart
from tests.app.rig import Client, LoudnessVad, Running, keys_file, running, script_spec, talking

ANN, BEN = "ann's-key-of-16-chars", "ben's-key-of-16-chars"
REMEMBER = 'tool remember {"name": "favourite colour", "value": "a very rare teal"}'


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Running]:
    """A server with memory in ``folder``, and two keys."""
    keys = folder / "keys"
    if not keys.exists():
        keys_file(folder, f"ann: {ANN}", f"ben: {BEN}")
    section = {"keys_file": str(keys), "memory": {"path": str(folder / "facts.sqlite")}}
    async with running(script_spec(**section), vad=LoudnessVad) as one:
        yield one


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Running]:
    async with serving(tmp_path) as one:
        yield one


@asynccontextmanager
async def http(server: Running, key: str) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.http, headers=bearer(key)) as client:
        yield client


async def facts(server: Running, key: str, **query: str) -> dict[str, str]:
    """The exported facts of a key by their names."""
    async with http(server, key) as client:
        response = await client.get("/v1/memory", params=query)
    assert response.status_code == 200
    return {one["name"]: one["value"] for one in response.json()["facts"]}


async def remembering(client: Client, user: str = "") -> Client:
    """Switch the session's memory on."""
    session = await client.configure(output_modalities=["text"], parley={"memory": {"user": user}})
    assert session["parley"]["memory"] == {"user": user}
    return client


def remains(folder: Path, *words: bytes) -> list[bytes]:
    """The words that the memory file, or a file that SQLite made for it, still contains."""
    files = [file.read_bytes() for file in folder.glob("facts.sqlite*")]
    assert files
    return [word for word in words if any(word in file for file in files)]


async def told(client: Client) -> str:
    """The text of the next spoken or written response."""
    done = await client.until("response.done")
    return "".join(part["text"] for part in done["response"]["output"][-1]["content"])


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch, server: Running) -> list[str]:
    """The system messages of all requests that the engine receives."""
    seen: list[str] = []
    engine: Any = server.service.engine_host.engine
    opened = engine.open

    def watched(request: Request, inputs: Any = None) -> Any:
        systems = [part for message in request.messages if message.role == "system" for part in message.parts]
        seen.append("\n".join(part.text for part in systems if isinstance(part, TextPart)))
        return opened(request, inputs)

    monkeypatch.setattr(engine, "open", watched)
    return seen


async def test_the_model_stores_a_fact_and_speaks_about_it_unasked(server: Running) -> None:
    async with talking(server, additional_headers=bearer(ANN)) as client:
        await remembering(client)
        done = await client.ask(REMEMBER)
        assert [(one["type"], one["server_label"]) for one in done["output"]] == [("mcp_call", "parley.memory")]
        assert await told(client) == "The tool says: Stored: favourite colour"
    assert await facts(server, ANN) == {"favourite colour": "a very rare teal"}


async def test_a_restart_keeps_the_facts_and_no_other_key_has_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, talking(server, additional_headers=bearer(ANN)) as client:
        await (await remembering(client)).ask(REMEMBER)
        await told(client)
    async with serving(tmp_path) as server:
        assert await facts(server, ANN) == {"favourite colour": "a very rare teal"}
        assert await facts(server, BEN) == {}
        async with http(server, BEN) as ben:
            assert (await ben.get("/v1/models")).json()["data"][0]["parley"]["memory_available"]
            assert (await ben.delete("/v1/memory/favourite colour")).json() == {"deleted": 0}
            assert (await ben.delete("/v1/memory")).json() == {"deleted": 0}
        assert await facts(server, ANN)


async def test_a_prompt_has_the_facts_of_its_own_key_and_user(server: Running, prompts: list[str]) -> None:
    for key, user, value in ((ANN, "", "Ann's own"), (ANN, "u1", "first"), (ANN, "u2", "second"), (BEN, "u1", "Ben's")):
        async with http(server, key) as client:
            response = await client.put("/v1/memory/pet", params={"user": user}, json={"value": value})
            assert response.status_code == 200
    async with talking(server, additional_headers=bearer(ANN)) as client:
        await client.configure(output_modalities=["text"], instructions="Be brief.")
        await client.ask("say: hi")
        await remembering(client, "u1")
        await client.ask("say: hi")
        await client.ask("say: hi", conversation="none")
    assert (prompts[0], prompts[2]) == ("Be brief.", "Be brief.")
    assert prompts[1].startswith("Be brief.\n\n")
    assert prompts[1].endswith("\n- pet: first")


async def test_a_deletion_reaches_open_sessions_and_leaves_no_bytes(
    server: Running, prompts: list[str], tmp_path: Path
) -> None:
    async with http(server, ANN) as rest, talking(server, additional_headers=bearer(ANN)) as client:
        await rest.put("/v1/memory/pet", json={"value": "a hedgehog"})
        await remembering(client)
        await client.ask("say: hi")
        assert (await rest.delete("/v1/memory/pet")).json() == {"deleted": 1}
        await client.ask("say: hi")
        await client.ask(REMEMBER)
        await told(client)
        await client.ask('tool forget {"name": "favourite colour"}')
        assert await told(client) == "The tool says: Deleted."
    assert "hedgehog" in prompts[0]
    assert "hedgehog" not in "".join(prompts[1:])
    assert await facts(server, ANN) == {}
    assert not remains(tmp_path, b"hedgehog", b"teal", b"favourite")


async def test_a_locked_file_is_one_clear_error_and_the_session_goes_on(server: Running, tmp_path: Path) -> None:
    async with talking(server, additional_headers=bearer(ANN)) as client, http(server, ANN) as rest:
        await remembering(client)
        with closing(sqlite3.connect(tmp_path / "facts.sqlite")) as other:
            other.execute("BEGIN EXCLUSIVE")
            await client.ask(REMEMBER)
            reason = "The server's memory can't be used now: another process has locked the file."
            assert await told(client) == f"The tool says: Error: {reason}"
            response = await rest.get("/v1/memory")
            assert (response.status_code, response.json()["error"]["code"]) == (503, "memory_unavailable")
            await client.send("session.update", session={"parley": {"memory": {"user": "other"}}})
            assert (await client.error())["message"] == reason
        await client.ask(REMEMBER)
        assert await told(client) == "The tool says: Stored: favourite colour"


async def test_a_client_secret_reaches_only_its_own_user(server: Running) -> None:
    async with http(server, ANN) as rest:
        for user in ("u1", "u2"):
            await rest.put("/v1/memory/pet", params={"user": user}, json={"value": f"pet of {user}"})
        session = {"output_modalities": ["text"], "parley": {"memory": {"user": "u1"}}}
        made = (await rest.post("/v1/realtime/client_secrets", json={"session": session})).json()
    async with talking(server, additional_headers=bearer(made["value"])) as client:
        assert client.events[0]["session"]["parley"]["memory"] == {"user": "u1"}
        await client.send("session.update", session={"parley": {"memory": {"user": "u2"}}})
        assert (await client.error())["param"] == "session.parley.memory"
        await client.ask('tool forget {"name": "pet"}')
        await told(client)
    assert await facts(server, ANN) == {"pet": "pet of u2"}
    async with http(server, made["value"]) as page:
        assert (await page.get("/v1/memory")).status_code == 401


async def test_a_server_without_memory_has_no_route_and_no_tool(tmp_path: Path) -> None:
    async with running(script_spec(), vad=LoudnessVad) as server, talking(server) as client:
        assert "memory_available" not in client.events[0]["session"]["parley"]
        await client.send("session.update", session={"parley": {"memory": {}}})
        assert (await client.error())["code"] == "not_supported"
        assert [one["type"] for one in (await client.ask(REMEMBER))["output"]] == ["function_call"]
        async with httpx.AsyncClient(base_url=server.http) as rest:
            assert (await rest.get("/v1/memory")).status_code == 404
            assert not (await rest.get("/v1/models")).json()["data"][0]["parley"]["memory_available"]
            assert "/v1/memory" not in (await rest.get("/openapi.json")).json()["paths"]
            secret = {"session": {"parley": {"memory": {}}}}
            assert (await rest.post("/v1/realtime/client_secrets", json=secret)).status_code == 400


@pytest.mark.parametrize("user", ["a b", "ä", "x" * 129, "a\n"])
async def test_the_name_of_a_user_is_one_word(server: Running, user: str) -> None:
    async with http(server, ANN) as rest, talking(server, additional_headers=bearer(ANN)) as client:
        response = await rest.get("/v1/memory", params={"user": user})
        assert response.json()["error"]["param"] == "user"
        await client.send("session.update", session={"parley": {"memory": {"user": user}}})
        assert (await client.error())["param"] == "session.parley.memory.user"


@pytest.mark.parametrize(
    "arguments", ["[]", '{"name": "x"}', '{"name": "", "value": "y"}', '{"name": 1, "value": "y"}']
)
async def test_wrong_arguments_of_the_model_are_an_error_of_the_tool(server: Running, arguments: str) -> None:
    async with talking(server, additional_headers=bearer(ANN)) as client:
        await (await remembering(client)).ask(f"tool remember {arguments}")
        assert (await told(client)).startswith("The tool says: Error: ")
        await client.alive()
    assert json.dumps(await facts(server, ANN)) == "{}"
