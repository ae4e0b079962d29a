"""The path from a datagram socket to its reader: one sender's datagrams, at its allowed rate and in its turn.

A stream can be left unread, a datagram socket can't: datagrams beyond the sender's message or byte rate are dropped,
and a bounded number waits for the sender's share of the event loop's time. Knows no protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from app.limits.fair_scheduler import LoopTimeBudget

MOST_WAITING = 64
"""Maximum number of waiting datagrams: more than a second of a telephone's audio."""


class DatagramIntake:
    """The intake of one sender. ``read`` receives each datagram and its address; ``loop_time`` is the sender's."""

    def __init__(self, read: Callable[[bytes, Any], None], loop_time: LoopTimeBudget) -> None:
        self._read = read
        self._loop_time = loop_time
        self._waiting = deque[tuple[bytes, Any]]()
        self._waits = False  # for a slice of the event loop's time

    def put(self, data: bytes, address: Any) -> None:
        """Read a datagram now, or in the sender's turn. It is dropped if too many wait."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((data, address))
            self._go_on()

    def close(self) -> None:
        """Drop all waiting datagrams. May be called twice."""
        self._waiting.clear()

    def _go_on(self) -> None:
        while self._waiting and not self._waits:
            if self._loop_time.used_up:
                self._waits = True
                self._loop_time.join(self._again)
            else:
                self._take(*self._waiting.popleft())

    def _take(self, data: bytes, address: Any) -> None:
        pace, now_s = self._loop_time.pace, self._loop_time.now()
        if pace is not None:
            if pace.wait_s(now_s) > 0:
                return
            pace.spend(1, len(data), now_s)
        self._loop_time.begin()
        try:
            self._read(data, address)
        finally:
            self._loop_time.count()

    def _again(self) -> None:
        self._waits = False
        self._go_on()
