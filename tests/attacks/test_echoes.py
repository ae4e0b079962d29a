"""A few bytes that are answered with many: one client makes the server send no more than its share."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.limits.rate_limiter import BURST_S
from tests.attacks.raw import TEXT, frame, upgraded
from tests.attacks.target import Target, Waits, attacked

pytestmark = pytest.mark.attacks

UNGUARDED = """
from app.limits.rate_limiter import RateLimiter
RateLimiter.wait_s = lambda self, now_s: max(self._messages.wait_s(now_s), self.received.wait_s(now_s))
"""
"""Sent bytes do not slow the client."""

LONG = "x" * 250_000
FOR_S = 5.0
RATE_MB_S = 0.4
"""A tenth of the default, so that a slow machine shows the difference, too."""
MOST_BYTES = RATE_MB_S * 1e6 * (BURST_S + FOR_S) + 6e6
"""The burst, the rate, and the response to one piece of input."""


def said(type: str, **fields: Any) -> bytes:
    return frame(TEXT, json.dumps({"type": type, **fields}).encode())


REALTIME, LIVE = "/v1/realtime", "/v1/live/sessions"
ITEM = {"id": "item_long", "type": "message", "role": "user", "content": [{"type": "input_text", "text": LONG}]}
ECHOES = {
    "settings": (
        REALTIME,
        said("session.update", session={"type": "realtime", "instructions": LONG}),
        said("session.update", session={"type": "realtime"}),
    ),
    "live settings": (
        LIVE,
        said("session.start", session={"model": "nano", "instructions": LONG}),
        said("session.update", session={}),
    ),
    "an item": (
        REALTIME,
        said("conversation.item.create", item=ITEM),
        said("conversation.item.retrieve", item_id="item_long"),
    ),
}


async def echoed(aim: Target, path: str, first: bytes, again: bytes) -> tuple[int, int]:
    """Ask again for FOR_S, and read everything: the bytes sent and received."""
    reader, writer = await upgraded(aim.port, path)
    writer.write(first)
    await asyncio.sleep(1)
    sent = received = 0

    async def ask() -> None:
        nonlocal sent
        while True:
            writer.write(again * 20)
            sent += len(again) * 20
            await writer.drain()
            await asyncio.sleep(0.02)

    async def read() -> None:
        nonlocal received
        while data := await reader.read(1 << 20):
            received += len(data)

    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(FOR_S):
            await asyncio.gather(ask(), read())
    writer.transport.abort()
    return sent, received


async def pages(aim: Target) -> tuple[int, int]:
    """The same with requests of HTTP on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", aim.port)
    again = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    sent = received = 0
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(FOR_S):
            while True:
                writer.write(again * 5)
                sent += len(again) * 5
                received += len(await reader.read(1 << 20))
    writer.transport.abort()
    return sent, received


async def seen(folder: Path, name: str, before: str = "") -> tuple[int, Waits]:
    async with attacked(folder, {"limits": {"received_mb_s": RATE_MB_S}}, before=before) as (aim, bystander, _):
        sent, received = await (pages(aim) if name == "pages" else echoed(aim, *ECHOES[name]))
        print(f"{name}: {sent / 1e6:.2f} MB in, {received / 1e6:.0f} MB out, {aim.grown_mb():.0f} MB more memory")
        assert aim.tracebacks == 0
    return received, bystander.waits


@pytest.mark.parametrize("name", [*ECHOES, "pages"])
async def test_one_client_is_sent_its_share(tmp_path: Path, name: str) -> None:
    received, waits = await seen(tmp_path, name)
    assert waits.broken is None
    assert waits.longest_ms <= 100
    assert 100_000 < received < MOST_BYTES


async def test_without_a_limit_it_is_sent_more(tmp_path: Path) -> None:
    received, _ = await seen(tmp_path, "settings", UNGUARDED)
    assert received > MOST_BYTES
