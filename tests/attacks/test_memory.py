"""Sessions that held much leave a server as small as it was: what they held is let go, and given back to the system."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
from websockets.asyncio.client import connect

from app.limits.memory_budget import malloc_trim
from tests.attacks.target import MB, Target, attacked
from tests.attacks.test_sizes import picture, showing

pytestmark = pytest.mark.attacks

KEPT = "from app.limits import memory_budget; memory_budget.malloc_trim = lambda: None"
SESSIONS, PICTURES = 6, 20
WITHIN_S = 15.0


def rss_mb(aim: Target) -> float:
    """Of the main process: what workers hold is their own."""
    return psutil.Process(aim.pid).memory_info().rss / MB


async def held_and_left(aim: Target) -> tuple[float, float]:
    """MB more than before while sessions hold pictures of 60 MB each, and some seconds after they have ended."""
    before = rss_mb(aim)
    item = json.dumps({"type": "conversation.item.create", "item": showing(picture(1000, 1000), PICTURES)})
    async with AsyncExitStack() as open_now:
        for _ in range(SESSIONS):
            socket = await open_now.enter_async_context(connect(aim.ws, max_size=None))
            await socket.send(item)
            while json.loads(await socket.recv())["type"] != "conversation.item.done":
                pass
        held = rss_mb(aim) - before
    end_s = time.monotonic() + WITHIN_S
    while rss_mb(aim) - before > held / 4 and time.monotonic() < end_s:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.2)
    return held, rss_mb(aim) - before


@pytest.mark.skipif(malloc_trim() is None, reason="this C library gives memory back by itself, or never")
async def test_what_large_sessions_held_is_given_back(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (aim, bystander, _):
        held, left = await held_and_left(aim)
    print(f"held {held:.0f} MB, left {left:.0f} MB", bystander.waits)
    assert held > 0.9 * SESSIONS * PICTURES * 3
    assert left < held / 4
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms < 100


@pytest.mark.skipif(malloc_trim() is None, reason="this C library gives memory back by itself, or never")
async def test_without_being_told_the_allocator_keeps_it(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=KEPT) as (aim, _, _):
        held, left = await held_and_left(aim)
    print(f"held {held:.0f} MB, left {left:.0f} MB")
    assert left > held / 4
