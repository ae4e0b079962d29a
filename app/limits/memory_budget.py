"""The memory budget: a bound on the bytes held for all clients, and the return of freed memory to the system.

The C allocator keeps freed memory. Without ``malloc_trim`` a server would stay as large as its largest sessions were.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Literal

from app.limits.principal import Principal
from app.limits.quotas import Quotas
from app.refusal import Closed

HeldKind = Literal["conversations", "requests", "settings", "secrets", "responses"]
"""Kinds of held memory: sessions' items and media, HTTP bodies with their decoded contents, sessions' settings, client
secrets, and stored responses."""

MUCH_BYTES = 16_000_000
"""Freed bytes that are returned soon, within EVERY_S: a conversation with some pictures."""

EVERY_S = 5.0
"""Seconds until then, since trimming takes some milliseconds in a thread and may delay allocations."""

LITTLE_BYTES, LATER_S = 1_000_000, 60.0
"""From LITTLE_BYTES (a few seconds of speech) on, but below MUCH_BYTES, freed bytes are returned to the system after
LATER_S.

Otherwise a server with only short conversations would never return them.
"""


class MemoryFull(Closed):
    """The server holds as many bytes for its clients as ``limits.held_mb`` allows."""

    def __init__(self, message: str) -> None:
        super().__init__("server_full", message)


class MemoryBudget:
    """The memory of one server: at most ``most`` bytes, with quotas for each key and each address.

    ``trim`` returns freed memory to the system; it runs in a thread. When the memory is full, ``reclaim``
    is called with the number of missing bytes. It may free fewer.
    """

    def __init__(
        self, most: int = 1 << 62, quotas: Quotas | None = None, trim: Callable[[], object] | None = None
    ) -> None:
        self.most = most
        self.reclaim: Callable[[int], None] = lambda size: None
        self._kinds = Counter[HeldKind]()
        self._shares = quotas or Quotas()
        self._trim = trim or malloc_trim()
        self._freed = 0  # bytes freed since the last trim
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """Return the bytes held for all clients."""
        return self._kinds.total()

    def held_of(self, kind: HeldKind) -> int:
        """Return the held bytes of one kind."""
        return self._kinds[kind]

    def check(self, size: int, caller: Principal) -> None:
        """Raise MemoryFull or QuotaExceeded if there is no room for ``size`` more bytes."""
        self._shares.check("bytes", caller, size)
        if (missing := self.held + size - self.most) > 0:
            self.reclaim(missing)
        if self.held + size > self.most:
            raise MemoryFull(f"The server holds {self.most / 1e6:g} MB for its clients already; try again later.")

    def count(self, change: int, caller: Principal | None, kind: HeldKind = "conversations") -> None:
        """Change the number of bytes held for a caller. With None, the bytes count in no quota."""
        self._kinds[kind] += change
        if caller is not None:
            self._shares.count("bytes", caller, change)
        if change < 0:
            self._free(-change)

    def close(self) -> None:
        """Stop trimming. May be called twice."""
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


class MemoryReservation:
    """The memory account of one session or one request. ``kind`` is the default kind of its bytes."""

    def __init__(
        self,
        memory: MemoryBudget | None = None,
        caller: Principal | None = None,
        kind: HeldKind = "conversations",
    ) -> None:
        self._memory = memory or MemoryBudget()
        self._caller = caller or Principal()
        self._kind: HeldKind = kind
        self._kinds = Counter[HeldKind]()
        self._closed = False

    @property
    def held(self) -> int:
        return self._kinds.total()

    def check(self, size: int) -> None:
        """Raise MemoryFull or QuotaExceeded if there is no room for ``size`` more bytes."""
        self._memory.check(size, self._caller)

    def take(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises MemoryFull or QuotaExceeded, and then holds nothing more."""
        self.check(size)
        self.count(size)

    def count(self, change: int, kind: HeldKind | None = None) -> None:
        """Change the number of held bytes without checking for room."""
        if not self._closed:
            self._kinds[kind or self._kind] += change
            self._memory.count(change, self._caller, kind or self._kind)

    def close(self) -> None:
        """Release all bytes, and ignore later changes. May be called twice."""
        for kind, size in tuple(self._kinds.items()):
            self.count(-size, kind)
        self._closed = True


def malloc_trim() -> Callable[[], object] | None:
    """Return the function that returns freed memory to the system, or None if the C library has none (glibc has).

    It runs without Python's global lock.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int
    return lambda: trim(0)
