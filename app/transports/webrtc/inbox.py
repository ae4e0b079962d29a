"""What comes in from a call, by whatever way, in one line for its session: bounded, and whoever puts never waits.

It outlives a connection: what another one said while the client was away is there when he is back.
"""

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

    async def told(self, over: asyncio.Event) -> AsyncGenerator[Told]:
        """Everything, in order, until ``over``, of which ``wake`` tells; what is left is for the next one who reads."""
        while not over.is_set():
            while self._waiting and not over.is_set():
                told, size = self._waiting.popleft()
                self._bytes -= size
                yield told
            self._news.clear()
            if not over.is_set():
                await self._news.wait()

    def wake(self) -> None:
        """Look whether it is over."""
        self._news.set()
