"""Requests that clients of OpenAI's API, browsers and reverse proxies send."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect

from tests.app.http.test_nano_hears import nano
from tests.app.rig import Client, Running, running, script_spec
from tests.app.transports.reverse_proxies import UPGRADE, free_port, nginx_of

__all__ = ["nano"]

SDK_HEADERS = "authorization,content-type,x-stainless-arch,x-stainless-helper-method,x-stainless-timeout"
ORIGINS = ["https://shop.example.org", "app://obsidian.md"]
BELOW = "server {{ listen 127.0.0.1:{port}; location /voice/ {{ proxy_pass http://127.0.0.1:{server}/; {more} }} }}"
LINK = re.compile(r'(?:src|href)="([^"#]+)"')


EMPTY: list[Any] = ["", None, [], [{"type": "text", "text": ""}]]


@pytest.mark.parametrize("content", EMPTY)
async def test_an_empty_answer_in_the_history_is_accepted(content: Any, server: Running) -> None:
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "say: still here"},
    ]
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post("/v1/chat/completions", json={"model": "script", "messages": messages})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "still here"


@pytest.mark.parametrize("content", ["", [], [{"type": "output_text", "text": ""}]])
async def test_an_empty_answer_in_the_items_of_a_response_is_accepted(content: Any, server: Running) -> None:
    items = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "say: still here"},
    ]
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post("/v1/responses", json={"model": "script", "input": items})
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"][0]["content"][0]["text"] == "still here"


@pytest.mark.parametrize(
    ("origin", "allowed"), [*((origin, True) for origin in ORIGINS), ("https://other.example.org", False)]
)
async def test_a_preflight_with_the_headers_of_an_sdk(origin: str, allowed: bool) -> None:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": SDK_HEADERS,
    }
    async with (
        running(script_spec(allowed_origins=ORIGINS)) as server,
        httpx.AsyncClient(base_url=server.http) as http,
    ):
        answer = await http.options("/v1/chat/completions", headers=headers)
    assert answer.is_success is allowed
    assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
    if allowed:
        accepted = answer.headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
        assert set(SDK_HEADERS.split(",")) <= set(accepted)


async def test_the_page_asks_for_nothing_above_its_own_path(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        page = await http.get("/")
    links = LINK.findall(page.text)
    assert links
    assert [link for link in links if link.startswith("/")] == []


@pytest.mark.nginx
async def test_the_page_and_a_session_work_below_a_path(server: Running, tmp_path: Path) -> None:
    port = free_port()
    async with (
        nginx_of(tmp_path, port, BELOW.format(port=port, server=server.port, more=UPGRADE)),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/voice/") as http,
        connect(f"ws://127.0.0.1:{port}/voice/v1/realtime") as socket,
    ):
        links = [link for link in LINK.findall((await http.get("")).text) if "://" not in link]
        assert {(await http.get(link)).status_code for link in [*links, "v1/models"]} == {200}
        client = Client(socket)
        await client.until("session.created")
        await client.alive()


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", ["😀", "...", "—", "**", "()", "…", "\u200b"])
async def test_a_text_without_words_is_a_file_without_sound(text: str, nano: AsyncOpenAI) -> None:
    answer = await nano.audio.speech.create(model="x", voice="x", input=text, response_format="wav")
    assert answer.content.startswith(b"RIFF")
    assert len(answer.content) < 5_000
