"""Messages on their way to one socket: bounded in seconds of audio and in bytes, read by one writer.

``put`` never waits, since a session must not. A reader who falls too far behind is told so by ``overflowed``.
"""

from __future__ import annotations

import asyncio
from collections import deque

FRAGMENT_CHARS = 256 * 1024
"""What of a long text is made to bytes and written at once, in well under a millisecond; a client may take as long for
it as for a short one."""

MAX_CHARS = 64 * 1024 * 1024
"""One retrieved item of five minutes is 20 MB; a client that asks for many and reads none ends here."""


class Outbox:
    """``limit_s`` bounds the audio that waits: pacing puts 1.5 s there, so more means that nobody reads."""

    def __init__(self, limit_s: float) -> None:
        self.overflowed = False
        self._limit_s = limit_s
        self._texts: deque[tuple[str, float]] = deque()
        self._chars = 0
        self._seconds = 0.0
        self._news = asyncio.Event()

    def put(self, text: str, seconds: float = 0.0) -> None:
        """Append a message that carries so much audio. Past a bound it is dropped, and the connection is lost."""
        if self._chars + len(text) > MAX_CHARS or self._seconds + seconds > self._limit_s:
            self.overflowed = True
        else:
            self._texts.append((text, seconds))
            self._chars += len(text)
            self._seconds += seconds
        self._news.set()

    def take(self) -> str | None:
        """The next message if there is one."""
        if not self._texts:
            return None
        text, seconds = self._texts.popleft()
        self._chars -= len(text)
        self._seconds -= seconds
        return text

    async def changed(self) -> None:
        """Wait for a message, or for the overflow."""
        while not self._texts and not self.overflowed:
            self._news.clear()
            await self._news.wait()
