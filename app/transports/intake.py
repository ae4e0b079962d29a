"""The path from a socket to its parser: one piece at a time, at the client's allowed rate, and after the previous input
was processed.

Unparsed input (at most one read of the socket) waits here while reading is paused. A client that sends too much fills
the buffers on its own side of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.limits.fair_scheduler import LoopTimeBudget
from app.limits.rate_limiter import RateLimiter

PIECE_BYTES = 1024
"""At most 170 frames, which take half a millisecond to parse."""


def _piece_bytes() -> int:
    return PIECE_BYTES


class Intake:
    """Passes a connection's input to its parser at the client's allowed rate.

    Args:
        parse: Receives a piece and returns the number of messages in it.
        ready: Returns whether the parser can receive the next piece.
        resume: Called when no input waits, to continue reading.
        left: Called when the client has exceeded its rate for too long.
        pace: The client's rate limiter.
        loop_time: The client's budget of event-loop time.
        piece_bytes: Returns the size of the next piece.
    """

    def __init__(
        self,
        parse: Callable[[bytes], int],
        ready: Callable[[], bool],
        resume: Callable[[], None],
        left: Callable[[], None],
        pace: RateLimiter,
        loop_time: LoopTimeBudget,
        piece_bytes: Callable[[], int] = _piece_bytes,
    ) -> None:
        self._parse = parse
        self._ready = ready
        self._resume = resume
        self._left = left
        self._pace = pace
        self._loop_time = loop_time
        self._now = loop_time.now
        self._piece_bytes = piece_bytes
        self._unread = memoryview(b"")
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False  # for its rate limit, or for a slice
        self._closed = False

    @property
    def behind(self) -> bool:
        """Whether unparsed input waits."""
        return bool(self._unread)

    def put(self, data: bytes) -> None:
        """Add input that was read."""
        if not self._closed:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
            self.go_on()

    def go_on(self) -> None:
        """Parse waiting input as far as allowed. Call it whenever ``ready`` may have become true."""
        while self._unread and not self._waits and self._ready():
            if self._loop_time.used_up:
                self._waits = True
                self._loop_time.join(self._again)
            elif wait_s := self._pace.wait_s(self._now()):
                self._waits = True
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._again)
            else:
                self._take()
        if not self._unread and not self._closed and self._ready():
            self._resume()

    def close(self) -> None:
        """Stop parsing. May be called twice.

        References to callbacks are dropped, so that the connection is freed at once instead of by a long garbage
        collection.
        """
        self._closed = True
        self._unread = memoryview(b"")
        self._parse = lambda data: 0
        self._ready = lambda: False
        self._resume = lambda: None
        self._left = lambda: None
        self._piece_bytes = _piece_bytes
        if self._timer is not None:
            self._timer.cancel()

    def _take(self) -> None:
        self._loop_time.begin()
        size = self._piece_bytes()
        piece = bytes(self._unread[:size])
        self._unread = self._unread[size:]
        self._pace.spend(self._parse(piece), len(piece), self._now())
        self._loop_time.count()
        if self._pace.goes_on(self._now()) and not self._closed:
            left = self._left
            self.close()
            left()

    def _again(self) -> None:
        self._waits = False
        self.go_on()
