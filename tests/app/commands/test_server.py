"""Answers of a running server, in the place of an engine's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from app.commands import server as commands_server
from app.commands.server import Address, RemoteServer, ServerStarting, _lines
from engine import Message, Request, TextPart, ToolCall
from tests.app.rig import Running

SEPARATORS = "one\u2028two\u2029three\x85four"
"""What ends a line for Python, and for nobody who reads events."""


async def test_a_separator_of_lines_in_an_answer_is_text(server: Running) -> None:
    arguments = f'{{"words": "{SEPARATORS}"}}'
    asked = Request(id="r", session="s", messages=(Message("user", (TextPart(f"tool look {arguments}"),)),))
    async with RemoteServer(Address(server.http)) as remote, remote.open(asked) as answer:
        assert [chunk.arguments async for chunk in answer if isinstance(chunk, ToolCall)] == [arguments]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_lines_are_whole_however_they_come(size: int) -> None:
    sent = f"data: {SEPARATORS}\r\n\ndata: [DONE]\n\n".encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(sent), size):
            yield sent[at : at + size]

    assert [line.decode() async for line in _lines(pieces())] == [f"data: {SEPARATORS}", "", "data: [DONE]", ""]


def loading(monkeypatch: pytest.MonkeyPatch, models: bytes, refusals: int) -> list[str]:
    """A server that still loads its models for the first requests. Returns the paths that clients request."""
    asked: list[str] = []
    starting = {"error": {"code": "starting", "message": "The server is starting; try again later."}}

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        if len(asked) <= refusals:
            return httpx2.Response(503, json=starting)
        return httpx2.Response(200, content=models)

    def client(address: Address, silent_s: float) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=address.root, transport=httpx2.MockTransport(respond))

    monkeypatch.setattr(commands_server, "_client", client)
    monkeypatch.setattr(commands_server, "RETRY_S", 0.0)
    return asked


async def test_a_server_that_loads_its_models_is_awaited(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async with httpx2.AsyncClient(base_url=server.http) as http:
        models = (await http.get("/v1/models")).content
    asked = loading(monkeypatch, models, refusals=3)
    async with RemoteServer(Address(server.http)) as remote:
        assert remote.model.name == "script"
    assert asked == ["/v1/models"] * 4


async def test_a_server_that_never_finishes_loading_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = loading(monkeypatch, b"", refusals=100)
    with pytest.raises(ServerStarting, match="The server is starting; try again later"):
        await RemoteServer(Address("http://127.0.0.1"), start_s=0).__aenter__()
    assert asked == ["/v1/models"]
