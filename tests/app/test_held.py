"""A session, or a request, that is over leaves no object of ours in its server, however little each would be: what a
hundred a minute leave is all that a server grows by in a day.

Engine and workers run in this very process, so theirs are counted, too.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import httpx
import pytest

from app import telemetry
from app.limits import log_rate_limiter
from app.limits.log_rate_limiter import LogRateLimiter
from tests.app.rig import Running, talking

FIRST, MORE = 3, 6
"""The first ones load and keep what all need. After more of them there is no kind with one object more for each."""

CANCELLED = 1000  # asyncio throws cancelled timers away once they are a hundred and more than the others


@pytest.fixture(autouse=True)
def a_line_each_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By the log's clock; the log is on, as in a server."""
    caplog.set_level(logging.INFO, "parley")
    caplog.set_level(logging.ERROR, "asyncio")  # its warnings of slow steps hold those steps' objects
    minutes = itertools.count()
    monkeypatch.setattr(telemetry, "_LINES", LogRateLimiter())
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(monotonic=lambda: 60.0 * next(minutes)))


async def session(server: Running) -> None:
    async with talking(server) as client:
        await client.ask("say: hello")
    await server.empty()


async def request(server: Running) -> None:
    body = {"model": "script", "messages": [{"role": "user", "content": "say: hello"}]}
    async with httpx.AsyncClient(base_url=server.http) as http:
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


Use = Callable[[Running], Awaitable[None]]


@pytest.mark.parametrize("use", [session, request])
async def test_what_is_over_leaves_nothing(server: Running, use: Use) -> None:
    before = await _after(FIRST, use, server)
    grown = await _after(MORE, use, server) - before
    assert not {name: count for name, count in grown.items() if count >= MORE}


async def test_where_lines_forget_nobody_each_session_stays_a_little(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(log_rate_limiter, "RESTED", 0)
    before = await _after(FIRST, session, server)
    grown = await _after(MORE, session, server) - before
    assert grown["app.limits.rate_limiter.TokenBucket"] >= 3 * MORE


async def _after(count: int, use: Use, server: Running) -> Counter[str]:
    for _ in range(count):
        await use(server)
    await _forget_cancelled_timers()
    return _ours()


async def _forget_cancelled_timers() -> None:
    """asyncio's own loop keeps them, with what their tasks had, until many are to be thrown away at once."""
    loop = asyncio.get_running_loop()
    for _ in range(CANCELLED):
        loop.call_later(3600, print).cancel()
    await asyncio.sleep(0)


def _ours() -> Counter[str]:
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(name for name in names if name.startswith(("app.", "engine.")))
