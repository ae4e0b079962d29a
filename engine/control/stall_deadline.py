"""The deadline that ends a request which makes no progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

MOVED = 0.1  # the deadline is moved at most once in this fraction of its limit


class StallDeadline:
    """Moves the deadline of a timeout while a request makes progress, and lifts it while the request waits for a slot.

    Args:
        timeout: The timeout around the request's work.
        limit_s: Seconds that the request may go without progress.
        fixed: Returns whether nothing moves the deadline any more, as after a role of a joined group has ended:
            otherwise other output of the request could hide a companion that hangs.
    """

    def __init__(self, timeout: asyncio.Timeout, limit_s: float, fixed: Callable[[], bool]) -> None:
        self._timeout = timeout
        self._limit_s = limit_s
        self._fixed = fixed
        self._queued = 0

    def progress(self) -> None:
        """Move the deadline. To save time, not every call does so."""
        deadline_s = asyncio.get_running_loop().time() + self._limit_s
        due_s = self._timeout.when()
        late = due_s is not None and due_s < deadline_s - MOVED * self._limit_s
        if late and not self._timeout.expired() and not self._fixed():
            self._timeout.reschedule(deadline_s)

    @contextmanager
    def lifted(self) -> Generator[None]:
        """Lift the deadline while the request waits for a slot. The requests that hold the slots have deadlines."""
        self._queued += 1
        if not self._timeout.expired() and not self._fixed():
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._queued -= 1
            if not self._queued and self._timeout.when() is None:
                self._timeout.reschedule(asyncio.get_running_loop().time() + self._limit_s)
