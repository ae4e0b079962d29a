"""The admission queue of a full server: bounded, first come, first served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class QueueFull(Exception):
    """The admission queue is full."""


class Waiter:
    """A client in the queue. ``moved`` receives each new position, from 1, and must not block."""

    def __init__(self, moved: Callable[[int], None]) -> None:
        self.moved = moved
        self.called = asyncio.Event()
        """Set once a session slot is reserved for this client."""


class AdmissionQueue:
    """The waiting clients, in order. ``given`` counts the reserved slots that have not been taken yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: list[Waiter] = []
        self._given: set[Waiter] = set()

    @property
    def given(self) -> int:
        return len(self._given)

    def __len__(self) -> int:
        return len(self._line)

    def join(self, moved: Callable[[int], None]) -> Waiter:
        """Append a client to the queue. Raises QueueFull."""
        if len(self._line) >= self._limit:
            raise QueueFull
        waiter = Waiter(moved)
        self._line.append(waiter)
        moved(len(self._line))
        return waiter

    def call(self) -> None:
        """Reserve a free slot for the first client."""
        if self._line:
            first = self._line.pop(0)
            self._given.add(first)
            first.called.set()
            self._report_places(0)

    def leave(self, waiter: Waiter) -> None:
        """Remove a client that takes its slot or gives up. May be called twice."""
        self._given.discard(waiter)
        if waiter in self._line:
            at = self._line.index(waiter)
            del self._line[at]
            self._report_places(at)

    def _report_places(self, start: int) -> None:
        for place, waiter in enumerate(self._line[start:], start=start + 1):
            waiter.moved(place)
