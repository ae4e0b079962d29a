"""Outgoing messages of one connection: limited in seconds of audio and in bytes, read by one writer.

``put`` never waits, since the session must not. ``overflowed`` is set if the writer falls too far behind.
"""

from __future__ import annotations

import asyncio
from collections import deque

FRAGMENT_CHARS = 256 * 1024
"""Characters of a long text that are encoded and sent at once, in well under a millisecond. The send timeout applies to
each of these pieces.
"""

MAX_CHARS = 64 * 1024 * 1024
"""Maximum characters: one retrieved item of five minutes has 20 MB. A client that requests many and reads none is
disconnected.
"""


class Outbox:
    """The outbox of one connection. ``limit_s`` limits the waiting audio: pacing needs 1.5 s, so more means that the
    client does not read.
    """

    def __init__(self, limit_s: float) -> None:
        self.overflowed = False
        self._limit_s = limit_s
        self._texts: deque[tuple[str, float]] = deque()
        self._chars = 0
        self._seconds = 0.0
        self._news = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Return the seconds of audio that wait."""
        return self._seconds

    def put(self, text: str, seconds: float = 0.0) -> None:
        """Append a message with ``seconds`` of audio. Beyond a limit it is dropped, and the connection must end."""
        if self._chars + len(text) > MAX_CHARS or self._seconds + seconds > self._limit_s:
            self.overflowed = True
        else:
            self._texts.append((text, seconds))
            self._chars += len(text)
            self._seconds += seconds
        self._news.set()

    def take(self) -> str | None:
        """Return the next message, or None."""
        if not self._texts:
            return None
        text, seconds = self._texts.popleft()
        self._chars -= len(text)
        self._seconds -= seconds
        return text

    async def changed(self) -> None:
        """Wait for a message or an overflow."""
        while not self._texts and not self.overflowed:
            self._news.clear()
            await self._news.wait()
