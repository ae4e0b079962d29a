"""Requests that are cheap to send, over many connections at once: everybody else is answered meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.app.transports.malformed import HEAD
from tests.attacks.raw import pushed
from tests.attacks.target import Target, Waits, attacked

pytestmark = pytest.mark.attacks

CONNECTIONS, FOR_S = 60, 3.0
PAGE = b"GET /docs/files/swagger-ui-bundle.js HTTP/1.1\r\n" + HEAD + b"\r\n"
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\n" + HEAD
BOUNDARY = b"--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n"
FORM = b"POST /v1/audio/transcriptions HTTP/1.1\r\n" + HEAD + b"Content-Type: multipart/form-data; boundary=b\r\n"
FLOODS = {
    "requests": (b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n") * 5000,
    "large files": PAGE * 100,
    "chunks": CHAT + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 100_000,
    "forms": FORM + b"Content-Length: 20000000\r\n\r\n" + BOUNDARY + b"\r\n-" * 200_000,
}
UNGUARDED = """
from app.limits import fair_scheduler
from app.limits.rate_limiter import TokenBucket
from app.transports import http_protocol
TokenBucket.wait_s = lambda self, now_s: 0.0
fair_scheduler.LoopTimeBudget.used_up = property(lambda self: False)
http_protocol.intake.PIECE_BYTES = http_protocol.PIECE_BYTES
"""


async def beside(folder: Path, data: bytes, before: str = "") -> tuple[Waits, Target]:
    """What the healthy client waits while so many others send this, and read nothing."""

    async def flood(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pushed(writer, data, FOR_S), asyncio.sleep(FOR_S))
        writer.transport.abort()

    async with attacked(folder, before=before) as (aim, bystander, peak):
        await asyncio.gather(*(flood(aim.port) for _ in range(CONNECTIONS)))
        assert aim.tracebacks == 0
    print(bystander.waits, f"{peak.grown_mb:.0f} MB")
    assert peak.grown_mb < 300
    return bystander.waits, aim


@pytest.mark.parametrize("name", FLOODS)
async def test_nobody_waits_for_those_who_flood_with_requests(name: str, tmp_path: Path) -> None:
    waits, _ = await beside(tmp_path, FLOODS[name])
    assert waits.broken is None
    assert waits.longest_ms < 100


async def test_without_the_line_everybody_waits(tmp_path: Path) -> None:
    waits, _ = await beside(tmp_path, FLOODS["chunks"], before=UNGUARDED)
    assert waits.longest_ms > 150
