"""The line in front of a full server: bounded, first come first served. Knows no socket, no session and no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LineFull(Exception):
    """The error where as many wait as may."""


class Waiter:
    """A request that waits. ``moved`` gets its place, 1 for the next one, whenever it changes; it must not wait."""

    def __init__(self, moved: Callable[[int], None]) -> None:
        self.moved = moved
        self.called = asyncio.Event()
        """Set once a place is free, and kept for it."""


class Waiting:
    """The requests that wait, in order. Places that were given and not yet taken count as taken (``given``)."""

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
        """Take the last place in the line. Raises LineFull."""
        if len(self._line) >= self._limit:
            raise LineFull
        waiter = Waiter(moved)
        self._line.append(waiter)
        moved(len(self._line))
        return waiter

    def call(self) -> None:
        """A place is free: the first one may take it."""
        if self._line:
            first = self._line.pop(0)
            self._given.add(first)
            first.called.set()
            self._report_places(0)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter that takes its place, or waits no more. May be called twice."""
        self._given.discard(waiter)
        if waiter in self._line:
            at = self._line.index(waiter)
            del self._line[at]
            self._report_places(at)

    def _report_places(self, start: int) -> None:
        for place, waiter in enumerate(self._line[start:], start=start + 1):
            waiter.moved(place)
