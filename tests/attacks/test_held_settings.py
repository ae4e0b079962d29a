"""Settings with small JSON and large objects: their memory is counted, bounded and freed."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.attacks.target import Target, attacked

pytestmark = pytest.mark.attacks

SECRETS, SESSIONS, RESPONSES = 300, 30, 40
BRACKETS = [[]] * 20_000
AS_OBJECTS = """
import orjson
from app.limits import principal
kept = []
dumps = orjson.dumps
orjson.dumps = lambda value, *more: (kept.append(orjson.loads(dumps(value))), dumps(value, *more))[1]
"""
SHAPES: dict[str, Any] = {
    "lists": {"a": BRACKETS},
    "objects": {"a": [{}] * 20_000},
    "small objects": {"a": [{"a": 1}] * 7000},
    "many keys": {f"k{n}": 0 for n in range(5000)},
}


async def held(aim: Target, kind: str) -> float:
    async with httpx.AsyncClient(base_url=aim.http) as http:
        page = (await http.get("/metrics")).text
    found = re.search(rf'parley_held_bytes\{{kind="{kind}"\}} (\S+)', page)
    assert found is not None
    return float(found[1])


async def issued(folder: Path, prompt: Any, before: str = "") -> tuple[float, float, float]:
    """Return the MB that many secrets with these settings take, that they count as, and after their withdrawal."""
    async with attacked(folder, before=before) as (aim, bystander, _):
        async with httpx.AsyncClient(base_url=aim.http, timeout=60) as http:
            for _ in range(SECRETS):
                body = {"session": {"type": "realtime", "prompt": prompt}}
                content = json.dumps(body, separators=(",", ":"))
                headers = {"content-type": "application/json"}
                await http.post("/v1/realtime/client_secrets", content=content, headers=headers)
            grown, counted = aim.grown_mb(), await held(aim, "secrets") / 1e6
            await http.post("/v1/realtime/client_secrets/withdraw", json={})
        left = await held(aim, "secrets")
    print(f"{grown:.0f} MB, counted {counted:.0f} MB, left {left}", bystander.waits)
    assert bystander.waits.broken is None
    return grown, counted, left


@pytest.mark.parametrize("shape", SHAPES)
async def test_client_secrets_take_what_they_count_as(shape: str, tmp_path: Path) -> None:
    grown, counted, left = await issued(tmp_path, SHAPES[shape])
    assert grown < 100
    assert 5 < counted < 30
    assert left == 0


async def test_as_objects_they_would_take_much_more(tmp_path: Path) -> None:
    grown, _, _ = await issued(tmp_path, SHAPES["lists"], before=AS_OBJECTS)
    assert grown > 250


async def test_tools_of_sessions_are_counted_and_bounded(tmp_path: Path) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "x": BRACKETS}}
    update = json.dumps({"type": "session.update", "session": {"tools": [tool]}})
    async with attacked(tmp_path, {"limits": {"held_mb": 20}}) as (aim, bystander, peak):
        async with AsyncExitStack() as opened:
            answers = list[str]()
            for _ in range(SESSIONS):
                socket = await opened.enter_async_context(connect(aim.ws, max_size=None))
                await socket.recv()
                await socket.send(update)
                answers.append(json.loads(await socket.recv())["type"])
            counted = await held(aim, "settings")
        await asyncio.sleep(0.5)
        assert await held(aim, "settings") < 1e6
    print(f"{peak.grown_mb:.0f} MB, counted {counted / 1e6:.0f} MB", bystander.waits)
    assert set(answers) == {"session.updated", "error"}
    assert 10e6 < counted < 20e6
    assert bystander.waits.broken is None


async def test_stored_responses_are_a_part_of_what_is_held(tmp_path: Path) -> None:
    text = "What is two plus two? " + "x " * 500
    async with (
        attacked(tmp_path, {"limits": {"held_mb": 20, "kept_mb": 0.1}}) as (aim, bystander, _),
        httpx.AsyncClient(base_url=aim.http, timeout=60) as http,
    ):
        for _ in range(RESPONSES):
            assert (await http.post("/v1/responses", json={"model": "nano", "input": text})).status_code == 200
        assert 0 < await held(aim, "responses") <= 100_000
    assert bystander.waits.broken is None
