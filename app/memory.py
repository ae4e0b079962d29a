"""The bytes that clients have a server hold: bounded for all of them together, and given back to the system afterwards.

An allocator keeps freed memory for itself. Unless it is asked to give that back, a server stays as large as its largest
sessions were. Knows no session and no request.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

from app.callers import Caller
from app.refusal import Closed
from app.shares import Shares

MUCH_BYTES = 16_000_000
"""The bytes let go from which on they are given back soon: a conversation of some pictures."""

EVERY_S = 5.0
"""Seconds between two times at the least: it takes some milliseconds in a thread, and an allocation may have to wait
for it."""

LITTLE_BYTES, LATER_S = 1_000_000, 60.0
"""From so few bytes on, which are some seconds of speech, they are given back after a minute. Else a server of short
conversations would hold what lies between them, too, for minutes, or for good where nobody else comes."""


class MemoryFull(Closed):
    """The server holds as many bytes for its clients as ``limits.held_mb`` allows."""

    def __init__(self, message: str) -> None:
        super().__init__("server_full", message)


class Memory:
    """The memory of one server: ``most`` bytes at a time, and of these each key and each address its share.

    ``trim`` gives free memory back to the system; it runs in a thread.
    """

    def __init__(
        self, most: int = 1 << 62, shares: Shares | None = None, trim: Callable[[], object] | None = None
    ) -> None:
        self.most = most
        self.held = 0
        self._shares = shares or Shares()
        self._trim = trim or malloc_trim()
        self._freed = 0  # since it was given back for the last time
        self._timer: asyncio.TimerHandle | None = None

    def check(self, size: int, caller: Caller) -> None:
        """Raises MemoryFull, or ShareTaken, where there is no room for so many bytes more."""
        if self.held + size > self.most:
            raise MemoryFull(f"The server holds {self.most / 1e6:g} MB for its clients already; try again later.")
        self._shares.check("bytes", caller, size)

    def count(self, change: int, caller: Caller) -> None:
        """The caller has so many bytes more held than before, or fewer."""
        self.held += change
        self._shares.count("bytes", caller, change)
        if change < 0:
            self._free(-change)

    def close(self) -> None:
        """Nothing is given back any more. May be called twice."""
        self._trim = None
        if self._timer is not None:
            self._timer.cancel()

    def _free(self, size: int) -> None:
        self._freed += size
        if self._trim is None or self._freed < LITTLE_BYTES:
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + (EVERY_S if self._freed >= MUCH_BYTES else LATER_S)
        if self._timer is not None and self._timer.when() > at_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(at_s, self._give_back)

    def _give_back(self) -> None:
        self._freed = 0
        self._timer = None
        if self._trim is not None:
            asyncio.get_running_loop().run_in_executor(None, self._trim)


class Room:
    """The bytes that one session, or one request, of a caller's holds."""

    def __init__(self, memory: Memory | None = None, caller: Caller | None = None) -> None:
        self._memory = memory or Memory()
        self._caller = caller or Caller()
        self.held = 0
        self._closed = False

    def check(self, size: int) -> None:
        """Raises MemoryFull, or ShareTaken, where there is no room for so many bytes more."""
        self._memory.check(size, self._caller)

    def take(self, size: int) -> None:
        """Hold so many bytes more. Raises MemoryFull, or ShareTaken; then nothing was taken."""
        self.check(size)
        self.count(size)

    def count(self, change: int) -> None:
        """Count so many bytes more, or fewer, whether there was room for them or not."""
        if not self._closed:
            self.held += change
            self._memory.count(change, self._caller)

    def close(self) -> None:
        """Nothing is held any more, and nothing is counted. May be called twice."""
        self.count(-self.held)
        self._closed = True


def malloc_trim() -> Callable[[], object] | None:
    """Return the call that gives free memory back to the system; None where the C library has none (glibc has).

    It does not hold Python's lock meanwhile.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int
    return lambda: trim(0)
