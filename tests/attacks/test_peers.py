"""Configured MCP servers that attack this server: no other client waits, and no memory stays in use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.mcp_rig import head, liar, result
from tests.attacks.target import Peak, Waits, attacked

pytestmark = pytest.mark.attacks

VISITS, AT_ONCE = 6, 3
SDK_ALONE = """
from app.mcp import client, transport
client.MOST_REQUESTS = transport.MOST_LINES = transport.MOST_VALUES = 1 << 40
"""


def streamed(*events: str) -> Callable[[dict[str, Any]], bytes]:
    """Send these events in the place of a list of tools, and no list."""
    body = "".join(events).encode()[: (1 << 20) - 1000]
    return lambda message: head(200, body, content_type="text/event-stream")


def message(**fields: Any) -> str:
    return f"data: {json.dumps({'jsonrpc': '2.0', **fields})}\n\n"


MANY = range(16_000)
HOSTILE = {
    "pings": streamed(*(message(id=n, method="ping") for n in MANY)),
    "questions": streamed(*(message(id=n, method="roots/list") for n in MANY)),
    "news": streamed(*[message(method="notifications/progress")] * 16_000),
    "answers to nothing": streamed(*(message(id=f"x{n}", result={}) for n in MANY)),
    "events without data": streamed(*["data:\n\n"] * 150_000),
    "comments": streamed(*[":\n"] * 500_000),
    "a list of brackets": lambda message: result(message, tools=[], x=[[]] * 250_000),
}


async def listed(folder: Path, name: str, before: str = "") -> tuple[Waits, Peak]:
    """Have the tools of such a server listed for some requests at once."""
    async with liar(HOSTILE[name]) as evil:
        mcp = [{"url": evil.url, "private": True, "timeout_s": 5}]
        tools = [{"type": "mcp", "server_label": "evil", "server_url": evil.url}]
        body = {"model": "nano", "input": "hi", "store": False, "tools": tools}
        async with attacked(folder, {"mcp": mcp}, before=before) as (aim, bystander, peak):
            async with httpx.AsyncClient(base_url=aim.http, timeout=60) as http:
                for _ in range(VISITS // AT_ONCE):
                    await asyncio.gather(*(http.post("/v1/responses", json=body) for _ in range(AT_ONCE)))
            assert aim.tracebacks == 0
    print(name, bystander.waits, f"{peak.grown_mb:.0f} MB")
    return bystander.waits, peak


@pytest.mark.parametrize("name", HOSTILE)
async def test_nobody_waits_for_a_hostile_mcp_server(name: str, tmp_path: Path) -> None:
    waits, peak = await listed(tmp_path, name)
    assert waits.broken is None
    assert waits.longest_ms < 100
    assert peak.grown_mb < 100


async def test_without_the_limits_everybody_waits(tmp_path: Path) -> None:
    waits, peak = await listed(tmp_path, "pings", before=SDK_ALONE)
    assert waits.longest_ms > 400
    assert peak.grown_mb > 100
