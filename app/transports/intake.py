"""The intake from a socket to its parser, a piece at a time: as fast as the client may be, and no faster than it is
obeyed.

What was read and is not yet parsed waits here (one read of the socket), while reading is paused: a client that sends
more than it may fills its own side of the connection. Knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.limits.fair_scheduler import LoopTimeBudget
from app.limits.rate_limiter import RateLimiter

PIECE_BYTES = 1024
"""At most 170 frames, half a millisecond to parse."""


def _piece_bytes() -> int:
    return PIECE_BYTES


class Intake:
    """``parse`` takes a piece and returns how many messages it held; ``ready``: whether the next one may follow.

    ``resume`` is called when nothing waits any more, ``left`` once a client goes on sending more than it may.
    ``loop_time`` is the client's; ``piece_bytes`` tells how much the parser takes at once where that is not always
    the same.
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
        self._waits = False  # for its pace, or for a slice
        self._closed = False

    @property
    def behind(self) -> bool:
        """Whether something waits: what the client said last is not known yet."""
        return bool(self._unread)

    def put(self, data: bytes) -> None:
        """Take what was read."""
        if not self._closed:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
            self.go_on()

    def go_on(self) -> None:
        """Parse what waits, as far as that may be now. Called whenever ``ready`` may have become true."""
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
        """Nothing more is parsed. May be called twice.

        Whom it called is forgotten: a connection that is over is then freed at once, and not by the collector, which
        would have tens of thousands of objects to look at, all in one turn of the loop.
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
