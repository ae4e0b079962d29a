"""What is small and comes by the thousand, and what is large and never ends: neither costs the others their time."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.attacks.raw import TEXT, frame, pushed, upgraded
from tests.attacks.target import Target, attacked

pytestmark = pytest.mark.attacks

ITEMS, PARTS = 2000, 64
WEIGHED_ANEW = """
from app.realtime.conversation.conversation import Conversation
from app.realtime.conversation.sizes import size_of
check_room = Conversation.check_room
def anew(self, size):
    assert sum(map(size_of, self._items.values())) >= 0
    check_room(self, size)
Conversation.check_room = anew
"""
"""Each further item has all of those before it weighed, in the event loop."""


def item(id: str) -> str:
    content = [{"type": "input_text", "text": "a"}] * PARTS
    made = {"id": id, "type": "message", "role": "user", "content": content}
    return json.dumps({"type": "conversation.item.create", "item": made})


async def until(socket: ClientConnection, type: str) -> dict[str, Any]:
    while (event := json.loads(await socket.recv()))["type"] != type:
        assert event["type"] != "error", event
    return event


async def filled(aim: Target, items: int) -> float:
    """Seconds for the last tenth of so many items over those for the first, and one is taken back in the end."""
    took_s = list[float]()
    async with connect(aim.ws, max_size=None, compression=None, ping_interval=None) as socket:
        for n in range(items):
            begun_s = time.perf_counter()
            await socket.send(item(f"i{n}"))
            await until(socket, "conversation.item.done")
            took_s.append(time.perf_counter() - begun_s)
        await socket.send(json.dumps({"type": "conversation.item.delete", "item_id": "i0"}))
        await until(socket, "conversation.item.deleted")
    tenth = items // 10
    return sorted(took_s[-tenth:])[tenth // 2] / sorted(took_s[:tenth])[tenth // 2]


async def test_items_that_are_many_and_small(tmp_path: Path) -> None:
    """Each of 2,000 had cost as much as all before it."""
    async with attacked(tmp_path, asks=True) as (aim, bystander, peak):
        ratio = await filled(aim, ITEMS)
    print(f"{ratio:.2f} times", bystander.waits, f"{peak.grown_mb:.0f} MB")
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= 100
    assert bystander.waits.answers > 3
    assert peak.grown_mb <= 300
    assert ratio < 3


async def test_items_that_are_weighed_anew_cost_more_and_more(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=WEIGHED_ANEW) as (aim, _, _):
        assert await filled(aim, ITEMS // 2) > 3


async def test_messages_whose_end_never_comes(tmp_path: Path) -> None:
    """Thirty clients, each with 15 MB of a message of 16: nobody waits for them, and what they sent goes with them."""
    most = frame(TEXT, b"a" * 16_000_000)[:15_000_000]
    async with attacked(tmp_path) as (aim, bystander, peak):
        writers = [(await upgraded(aim.port))[1] for _ in range(30)]
        await asyncio.gather(*(pushed(writer, most, 10.0) for writer in writers))
        for writer in writers:
            writer.transport.abort()
        async with asyncio.timeout(60):  # what was read and is not yet parsed is taken in first
            while aim.grown_mb() > 100:  # noqa: ASYNC110 - another process tells nobody
                await asyncio.sleep(0.2)
    print(bystander.waits, f"{peak.grown_mb:.0f} MB")
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= 100
    assert 300 < peak.grown_mb <= 600  # as much as so many clients may send: a message each
