"""All that comes in from a call, by whatever way, in one line for its session: bounded, and whoever puts never waits.

Messages are obeyed at the pace that a client may have; sound and pictures of tracks come at their own. It outlives a
connection: what another one brought while the client was away is there when it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from app.limits.rate_limiter import MESSAGE_BYTES, RateLimiter
from app.realtime.protocol.client_events import CameraFrame, InputSamples, Received

MAX_BYTES = 16 * 1024 * 1024
"""A minute of sound, or some pictures: a session that obeys is never so far behind."""

MAX_MESSAGES = 4096
"""The most messages that wait: those of a data channel can't be made to wait at the client, so ten seconds of the
quickest are kept."""


class Inbox:
    """``overflowed`` once a message had no room; sound that has none is dropped, as on a bad line.

    ``pace`` is the client's, ``now`` monotonic seconds.
    """

    def __init__(self, pace: RateLimiter, now: Callable[[], float] = time.monotonic) -> None:
        self.overflowed = asyncio.Event()
        self._pace = pace
        self._now = now
        self._waiting: deque[tuple[Received, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    def put(self, received: Received, size: int) -> None:
        """Append what takes ``size`` bytes."""
        size += MESSAGE_BYTES
        if self._bytes + size <= MAX_BYTES and len(self._waiting) < MAX_MESSAGES:
            self._waiting.append((received, size))
            self._bytes += size
            self._news.set()
        elif not isinstance(received.event, InputSamples):
            self.overflowed.set()

    async def received(self, over: asyncio.Event) -> AsyncGenerator[Received]:
        """Everything, in order, until ``over``, of which ``wake`` tells; what is left is for the next one who reads."""
        while not over.is_set():
            while self._waiting and not over.is_set():
                if wait_s := self._pace.wait_s(self._now()):
                    await _passed(over, wait_s)
                    continue
                received, size = self._waiting.popleft()
                self._bytes -= size
                if not isinstance(received.event, InputSamples | CameraFrame):
                    self._pace.spend(1, size, self._now())
                yield received
            self._news.clear()
            if not over.is_set():
                await self._news.wait()

    def wake(self) -> None:
        """Look whether it is over."""
        self._news.set()


async def _passed(over: asyncio.Event, wait_s: float) -> None:
    """Wait so long, unless it is over before."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await over.wait()
