"""The replicas of one stage: membership, leases, and who gets the next one. Routing only: no request's state.

Membership is a set: ``join``, ``drain`` and ``leave`` are its only events. Leaving expires the scope of every lease,
so whoever holds one meets ReplicaLost at once, wherever it waits.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from engine.core import StageInfo
from engine.errors import Overloaded, ReplicaLost, StageUnavailable


class Replica(Protocol):
    """One host of a stage. ``id`` is stable and never used again; ``worker`` names the process it lives in."""

    @property
    def id(self) -> str: ...

    @property
    def worker(self) -> str: ...


R = TypeVar("R", bound=Replica)


@dataclass(eq=False, slots=True)
class Member(Generic[R]):
    replica: R
    slots: int
    draining: bool = False
    leases: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])

    @property
    def free(self) -> bool:
        return not self.draining and len(self.leases) < self.slots


Policy = Callable[[Sequence[Member[Any]]], Member[Any]]


def _round_robin() -> Policy:
    turns = itertools.count()
    return lambda members: members[next(turns) % len(members)]


def _least_queue(members: Sequence[Member[Any]]) -> Member[Any]:
    least = min(len(member.leases) for member in members)
    return random.choice([member for member in members if len(member.leases) == least])


POLICIES: dict[str, Callable[[], Policy]] = {
    "least_queue": lambda: _least_queue,
    "round_robin": _round_robin,
    "random": lambda: random.choice,
}


class StagePool(Generic[R]):
    """One stage's replicas. Requests that find no free slot wait in order of arrival, at most ``queue`` of them."""

    def __init__(self, info: StageInfo, balance: str = "least_queue", queue: int = 64) -> None:
        self.info = info
        self._queue = queue
        self._choose = POLICIES[balance]()
        self._members: dict[str, Member[R]] = {}
        self._waiters: deque[asyncio.Event] = deque()

    def __len__(self) -> int:
        return len(self._members)

    @property
    def leased(self) -> int:
        return sum(len(member.leases) for member in self._members.values())

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def join(self, replica: R) -> None:
        self._members[replica.id] = Member(replica, self.info.slots)
        self._serve_waiters()

    def drain(self, replica_id: str) -> None:
        """No new leases on it; those that are out run to their end."""
        if replica_id in self._members:
            self._members[replica_id].draining = True

    def leave(self, replica_id: str) -> None:
        """Forget a replica; every lease on it ends in ReplicaLost. Unknown ids are ignored: leaving twice is fine."""
        member = self._members.pop(replica_id, None)
        if member is not None:
            now = asyncio.get_running_loop().time()
            for lease in member.leases:
                lease.reschedule(now)
        self._serve_waiters()

    @asynccontextmanager
    async def lease(self, prefer: str | None = None) -> AsyncGenerator[R]:
        """A slot of a replica, preferably in worker ``prefer``, until the block is left.

        Raises StageUnavailable when there is no replica, Overloaded when the queue is full, and ReplicaLost when the
        replica leaves before the block does.
        """
        member = await self._admit(prefer)  # no await from here to the entry in its leases
        scope = asyncio.timeout(None)
        try:
            async with scope:
                member.leases.add(scope)
                self._serve_waiters()  # there may be a second free slot
                yield member.replica
        except TimeoutError:
            if scope.expired():
                raise ReplicaLost(f"the {self.info.name} replica {member.replica.id} was lost") from None
            raise
        finally:
            member.leases.discard(scope)
            self._serve_waiters()

    def has_room_on(self, worker: str) -> bool:
        """Whether a lease preferring this worker would get a slot there without waiting."""
        return not self._waiters and any(m.free and m.replica.worker == worker for m in self._members.values())

    async def _admit(self, prefer: str | None) -> Member[R]:
        """Wait for a free slot, in order of arrival."""
        if not self._waiters and (member := self._pick(prefer)):
            return member
        if len(self._waiters) >= self._queue:
            raise Overloaded(f"{self.info.name} is full and {self._queue} requests wait already; try again later")
        turn = asyncio.Event()
        self._waiters.append(turn)
        try:
            while True:
                await turn.wait()
                turn.clear()
                if self._waiters[0] is turn and (member := self._pick(prefer)):
                    return member
        finally:
            self._waiters.remove(turn)
            self._serve_waiters()  # its turn, if it could not take it, goes to the next

    def _pick(self, prefer: str | None) -> Member[R] | None:
        if not self._members:
            raise StageUnavailable(f"no replica of {self.info.name} is up")
        free = [member for member in self._members.values() if member.free]
        near = [member for member in free if member.replica.worker == prefer]
        return near[0] if near else self._choose(free) if free else None

    def _serve_waiters(self) -> None:
        """Wake the first in line if there is a slot for it, or none ever will be."""
        if self._waiters and (not self._members or any(member.free for member in self._members.values())):
            self._waiters[0].set()
