"""The bounded queue of everything that a call's client sends, on any path. Adding to it never waits.

Messages are read at the client's allowed rate; audio, video and keys of media streams immediately. The inbox outlives a
connection: messages from other channels are kept while the client is away.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from app.limits.rate_limiter import MESSAGE_BYTES, RateLimiter
from app.realtime.protocol.client_events import CameraFrame, InputSamples, KeyPressed, Received

MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of waiting messages: a minute of audio, or some images. A working session never falls so far behind."""

MAX_MESSAGES = 4096
"""Maximum number of waiting messages. A data channel can't slow its client down, so this covers ten seconds of the
fastest.
"""


class Inbox:
    """The inbox of one call. ``overflowed`` is set when a message found no room; audio without room is dropped.

    ``pace`` is the client's rate limiter, ``now`` returns monotonic seconds.
    """

    def __init__(self, pace: RateLimiter, now: Callable[[], float] = time.monotonic) -> None:
        self.overflowed = asyncio.Event()
        self._pace = pace
        self._now = now
        self._waiting: deque[tuple[Received, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    def put(self, received: Received, size: int) -> None:
        """Append a message of ``size`` bytes."""
        size += MESSAGE_BYTES
        if self._bytes + size <= MAX_BYTES and len(self._waiting) < MAX_MESSAGES:
            self._waiting.append((received, size))
            self._bytes += size
            self._news.set()
        elif not isinstance(received.event, InputSamples):
            self.overflowed.set()

    async def received(self, over: asyncio.Event) -> AsyncGenerator[Received]:
        """Yield everything in order until ``over`` is set. Call ``wake`` after setting it. The rest stays for the next
        reader.
        """
        while not over.is_set():
            while self._waiting and not over.is_set():
                if wait_s := self._pace.wait_s(self._now()):
                    await _passed(over, wait_s)
                    continue
                received, size = self._waiting.popleft()
                self._bytes -= size
                if not isinstance(received.event, InputSamples | CameraFrame | KeyPressed):
                    self._pace.spend(1, size, self._now())
                yield received
            self._news.clear()
            if not over.is_set():
                await self._news.wait()

    def wake(self) -> None:
        """Make the reader check ``over``."""
        self._news.set()


async def _passed(over: asyncio.Event, wait_s: float) -> None:
    """Wait ``wait_s`` seconds, or until ``over`` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await over.wait()
