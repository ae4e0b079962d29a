"""Messages as large as may be, over a socket, again and again: everybody else is answered meanwhile."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.attacks.target import Target, attacked

pytestmark = pytest.mark.attacks

UNGUARDED = """
from app.limits import fair_scheduler
from app.media import images
async def here(self, work, size):
    return work()
fair_scheduler.FairScheduler.read = here
images._MOST_MARKERS = 1 << 30
"""
FILLED = "data:image/jpeg;base64," + base64.b64encode(b"\xff\xd8" + b"\xff" * 10_000_000).decode()
"""A picture whose header has no end."""
SOUND = base64.b64encode(bytes(11_000_000)).decode()
LAW = {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}, "turn_detection": None}}}


def item(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [part]}}


MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "a picture": (item({"type": "input_image", "image_url": FILLED}), "error"),
    "a camera's picture": ({"type": "parley.camera.frame", "image_url": FILLED}, "error"),
    "sound of an item, which is too long": (item({"type": "input_audio", "audio": SOUND}), "error"),
    "a microphone's sound, which is too long": ({"type": "input_audio_buffer.append", "audio": SOUND}, "error"),
    "sound that is none": ({"type": "input_audio_buffer.append", "audio": "!" * 15_000_000}, "error"),
    "instructions": ({"type": "session.update", "session": {"instructions": "é" * 7_000_000}}, "error"),
}
"""What is sent, and the event that answers it."""


async def _say(aim: Target, name: str, times: int) -> None:
    event, answer = MESSAGES[name]
    async with connect(aim.ws, max_size=None, compression=None, ping_interval=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "session": LAW}))
        text = json.dumps(event, ensure_ascii=False)
        for _ in range(times):
            await socket.send(json.dumps({"type": "input_audio_buffer.clear"}))  # a full one is refused once
            await socket.send(text)
            while json.loads(await socket.recv())["type"] != answer:
                pass


async def test_nobody_waits_for_messages_of_megabytes(tmp_path: Path) -> None:
    waits, grown_mb = dict[str, float](), dict[str, float]()
    for name in MESSAGES:
        async with attacked(tmp_path) as (aim, bystander, peak):
            await _say(aim, name, 3)
        assert bystander.waits.broken is None
        assert aim.tracebacks == 0
        waits[name], grown_mb[name] = bystander.waits.longest_ms, peak.grown_mb
    print({name: (round(waits[name]), round(grown_mb[name])) for name in MESSAGES})
    assert max(waits.values()) <= 100
    assert max(grown_mb.values()) <= 300


async def test_where_they_are_read_in_the_loop_to_their_end_everybody_waits(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNGUARDED) as (aim, bystander, _):
        await _say(aim, "a picture", 1)
    assert bystander.waits.longest_ms > 500
