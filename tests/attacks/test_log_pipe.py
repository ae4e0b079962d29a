"""Nobody reads the pipe that the log goes to: the server goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.attacks.target import Target, attacked

pytestmark = pytest.mark.attacks

UNREAD = "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: os.dup2(os.pipe()[1], 2))"
"""From the signal on: what it says before, the test reads."""

UNGUARDED = (
    UNREAD
    + """
import logging, sys
from app import telemetry
from app.limits import log_rate_limiter
telemetry.LineWriter = lambda: logging.StreamHandler(sys.stderr)
log_rate_limiter.LogRateLimiter.admit = lambda self, event, subject, now_s: 0
"""
)
REFUSED = b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"


async def _refused(aim: Target, times: int) -> int:
    """How many of so many requests, each of which is a line of the log, are answered."""
    os.kill(aim.pid, signal.SIGUSR1)
    answered = 0
    for _ in range(times):
        reader, writer = await asyncio.open_connection("127.0.0.1", aim.port)
        writer.write(REFUSED)
        try:
            async with asyncio.timeout(5):
                answered += b" 403 " in (await reader.read())[:40]
        except TimeoutError:
            return answered
        finally:
            writer.transport.abort()
    return answered


async def test_a_log_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNREAD) as (aim, bystander, _):
        assert await _refused(aim, 1500) == 1500
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms < 100


async def test_one_that_waits_for_its_log_stops(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNGUARDED) as (aim, bystander, _):
        assert await _refused(aim, 1500) < 1500
    assert bystander.waits.longest_ms > 1000
