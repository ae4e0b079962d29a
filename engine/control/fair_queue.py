"""The queue of requests that wait for a slot of a stage. It decides their order; the pool does the waiting.

An owner is the client or user that a request belongs to. Owners with equally many slots take turns.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from engine.errors import Overloaded


@dataclass(eq=False, slots=True)
class QueuedLease:
    """A request in the queue."""

    owner: str
    round: int
    """Owners take turns in rounds: each round has at most one request of each owner."""
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the request should look for a slot, or has been rejected."""
    rejected: bool = False
    """Whether it lost its place to a request of another owner."""


class FairQueue:
    """A queue of at most ``limit`` waiting requests of the stage ``name``.

    Scheduling order: (1) the owner that holds the fewest slots, (2) the earliest round, (3) first come, first served. A
    full queue still accepts an owner that has fewer requests in it than another owner; the last request of that other
    owner is rejected.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._waiters: list[QueuedLease] = []  # in order of arrival
        self._held = Counter[str]()
        self._round = 0  # of the last request that left the queue with a slot

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def next(self) -> QueuedLease:
        """Return the request whose turn it is. The queue must not be empty."""
        return min(self._waiters, key=lambda waiter: (waiter.rejected, self._held[waiter.owner], waiter.round))

    def join(self, owner: str) -> QueuedLease:
        """Add a request of an owner. Raises Overloaded if the queue is full and the owner has its share of it."""
        waiting = [waiter for waiter in self._waiters if not waiter.rejected]
        if len(waiting) >= self._limit:
            counts = Counter(waiter.owner for waiter in waiting)
            most = max(counts.values(), default=0)
            if counts[owner] + 1 >= most:
                raise self.overloaded()
            last = next(waiter for waiter in reversed(waiting) if counts[waiter.owner] == most)
            last.rejected = True
            last.turn.set()
        rounds = (waiter.round for waiter in self._waiters if waiter.owner == owner)
        waiter = QueuedLease(owner, max(rounds, default=self._round) + 1)
        self._waiters.append(waiter)
        return waiter

    def leave(self, waiter: QueuedLease, served: bool) -> None:
        """Remove a request, whether or not it got a slot."""
        self._waiters.remove(waiter)
        if served:
            self._round = waiter.round

    def hold(self, owner: str, slots: int) -> None:
        """Record that an owner has leased ``slots`` slots."""
        self._held[owner] += slots

    def release(self, owner: str, slots: int) -> None:
        """Record that an owner has returned ``slots`` slots."""
        self._held[owner] -= slots
        if not self._held[owner]:
            del self._held[owner]

    def wake_all(self) -> None:
        """Wake every request, so that it looks for a slot."""
        for waiter in self._waiters:
            waiter.turn.set()

    def overloaded(self) -> Overloaded:
        """Return the error of a rejected request."""
        return Overloaded(f"{self._name} is busy and {self._limit} requests are already waiting; try again later")
