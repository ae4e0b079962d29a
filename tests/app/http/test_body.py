"""What bounds bodies while they come: size, time, and all of them together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import httpx
import pytest

from app.http.body import MAX_BODY_BYTES
from tests.app.rig import TIMEOUT_S, Running, eventually

URL = "/v1/chat/completions"
TYPE = {"content-type": "application/json"}
ASKED = json.dumps({"model": "script", "messages": [{"role": "user", "content": "say: hello"}]}).encode()


@pytest.mark.fault("N4.4")
async def test_a_body_that_drips_is_not_waited_for(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.body.BODY_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"POST {URL} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode())
    writer.write(b"content-length: 100\r\n\r\n{")
    try:
        assert b" 408 " in await reader.readline()
        assert b"request_timeout" in await reader.readuntil(b"}")
    finally:
        writer.close()
    monkeypatch.undo()
    async with httpx.AsyncClient(base_url=server.http) as http:
        assert (await http.post(URL, content=ASKED, headers=TYPE)).status_code == 200


async def test_a_body_that_says_it_is_too_large_is_not_waited_for(server: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"POST {URL} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode())
    writer.write(b"content-length: %d\r\n\r\n{" % (MAX_BODY_BYTES + 1))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert b" 413 " in await reader.readline()
    finally:
        writer.close()


@pytest.mark.fault("N4.4")
async def test_all_bodies_together_are_bounded_and_let_go(server: Running) -> None:
    memory = server.service.memory
    memory.most = 14_000  # with room for what the first body becomes
    go_on = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes]:
        yield b" " * 9_900
        await go_on.wait()
        yield ASKED[:50]
        yield ASKED[50:]

    async with httpx.AsyncClient(base_url=server.http) as http:
        first = asyncio.create_task(http.post(URL, content=slow(), headers=TYPE), name="first")
        await eventually(lambda: memory.held == 9_900)
        second = await http.post(URL, content=ASKED + b" " * 4_100, headers=TYPE)
        assert (second.status_code, second.json()["error"]["code"]) == (503, "server_full")
        go_on.set()
        assert (await first).status_code == 200
    assert memory.held == 0


async def test_a_client_that_leaves_in_its_body_holds_nothing(server: Running) -> None:
    memory = server.service.memory
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"POST {URL} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode())
    writer.write(b"content-length: 100\r\n\r\n{")
    await eventually(lambda: memory.held == 1)
    writer.close()
    await eventually(lambda: memory.held == 0)
