"""One client asks for five minutes of sound, again and again: everybody else is answered meanwhile."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import connect

from tests.attacks.target import Target, attacked

pytestmark = pytest.mark.attacks

UNGUARDED = """
from app.limits import fair_scheduler
async def here(self, work):
    return work()
fair_scheduler.FairScheduler.in_thread = here
"""
TIMES = 6


async def _retrieve(aim: Target, times: int) -> int:
    """How many of these came whole."""
    whole, ticks = 0, base64.b64encode(b"\x55" * 300 * 8000).decode()
    item = {"id": "long", "type": "message", "role": "user", "content": [{"type": "input_audio", "audio": ticks}]}
    settings = {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
    async with connect(aim.ws, max_size=None, compression=None, ping_interval=None) as socket:
        for event in (
            {"type": "session.update", "session": settings},
            {"type": "conversation.item.create", "item": item},
            *[{"type": "conversation.item.retrieve", "item_id": "long"}] * times,
        ):
            await socket.send(msgspec.json.encode(event).decode())
        while whole < times:
            text = await asyncio.wait_for(socket.recv(), 60)
            whole += len(text) > 19_000_000
    return whole


async def test_nobody_waits_for_sound_that_is_asked_for(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (aim, bystander, peak):
        assert await _retrieve(aim, TIMES) == TIMES
    print(bystander.waits, peak.grown_mb)
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms < 100
    assert peak.grown_mb < 300


async def test_without_the_thread_everybody_waits(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNGUARDED) as (aim, bystander, _):
        assert await _retrieve(aim, 2) == 2  # of more at once it would be told that it reads too slowly
    assert bystander.waits.longest_ms > 150
