"""An async iterator over events that a client has received but not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from app.client.channel import ClientError
from app.client.events import Event

UNREAD = 10_000
"""Maximum number of unread events; a long answer has some hundred."""


class Events:
    """An async iterator over the server's events, until the connection ends.

    Raises ClientError once more than UNREAD events wait to be read.
    """

    def __init__(self) -> None:
        self._unread: deque[Event | None] = deque()
        self._news = asyncio.Event()
        self._overflowed = False

    def put(self, event: Event | None) -> None:
        """Add the next event; None marks the end. Never waits."""
        if len(self._unread) < UNREAD:
            self._unread.append(event)
        else:
            self._overflowed = True
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._unread:
            self._news.clear()
            await self._news.wait()
        if self._overflowed:
            raise ClientError(f"the reader is too slow: {UNREAD} events are unread")
        event = self._unread.popleft()
        if event is None:
            self._unread.append(None)
            raise StopAsyncIteration
        return event
