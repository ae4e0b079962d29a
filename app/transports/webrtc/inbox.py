"""What comes in from a call, by whatever way, in one line for its session: bounded, and whoever puts never waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from app.realtime.commands import Hear, Told

MAX_BYTES = 16 * 1024 * 1024
"""A minute of sound, or some pictures: a session that obeys is never so far behind."""


class Inbox:
    """``overflowed`` once a message had no room; sound that has none is dropped, as on a bad line."""

    def __init__(self) -> None:
        self.overflowed = asyncio.Event()
        self._waiting: deque[tuple[Told, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    def put(self, told: Told, size: int) -> None:
        """Append what takes ``size`` bytes."""
        if self._bytes + size <= MAX_BYTES:
            self._waiting.append((told, size))
            self._bytes += size
            self._news.set()
        elif not isinstance(told.word, Hear):
            self.overflowed.set()

    async def told(self) -> AsyncGenerator[Told]:
        """Everything, in order, without an end."""
        while True:
            while self._waiting:
                told, size = self._waiting.popleft()
                self._bytes -= size
                yield told
            self._news.clear()
            await self._news.wait()
