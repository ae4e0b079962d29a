"""The replicas of one stage: membership, leases, and who gets the next one. Routing only: no request's state.

Membership is a set: ``join``, ``drain`` and ``leave`` are its only events. Leaving expires the scope of every lease,
so whoever holds one meets ReplicaLost at once, wherever it waits.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from engine.core import StageInfo
from engine.errors import ConfigError, Overloaded, Preempted, ReplicaLost, RequestError, StageUnavailable


def _never() -> bool:
    return False


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
    leases: dict[asyncio.Timeout, int] = field(default_factory=dict[asyncio.Timeout, int])
    """Leases that are out, and how many slots each takes."""
    queue: int = 0
    """Requests that could have stepped at its last heartbeat, and had to wait."""
    counted: tuple[asyncio.Timeout, ...] = ()
    """The leases that were out then."""
    step_s: float = 0.0
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a draining member has no lease left."""

    def free(self, slots: int = 1) -> bool:
        return not self.draining and sum(self.leases.values()) + slots <= self.slots

    @property
    def queued(self) -> int:
        """Requests of the reported queue that can still be waiting: no more than the leases of then that are still
        out."""
        return min(self.queue, sum(lease in self.leases for lease in self.counted)) if self.queue else 0


@dataclass(eq=False, slots=True)
class _Waiter:
    owner: str
    round: int
    """Owners who have as many slots as each other take turns: one request of each in a round."""
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    refused: bool = False
    """It gave its place in line to another owner's request."""


Policy = Callable[[Sequence[Member[Any]]], Member[Any]]
SLOW = 1.5  # a replica counts as slower than another from here on: smaller differences are noise
SESSIONS = 4096  # bindings that a pool remembers: far more than sessions are open; the oldest is forgotten first
BOUND_S = 600.0
"""A session stays bound for so many seconds after its last request. By then it is over, mostly, and nobody tells a pool
that it is; or the replica has given what it computed for it away to others."""


def _round_robin() -> Policy:
    turns = itertools.count()
    return lambda members: members[next(turns) % len(members)]


def _least_queue(members: Sequence[Member[Any]]) -> Member[Any]:
    """Choose the one that will come to a request soonest; a tie is drawn."""
    waits = [_wait(member, members) for member in members]
    return random.choice([member for member, wait in zip(members, waits, strict=True) if wait == min(waits)])


def _wait(member: Member[Any], members: Sequence[Member[Any]]) -> float:
    """Estimate the work before a further request: the leases and what waited there, each as long as its steps are
    slow."""
    return (1 + len(member.leases) + member.queued) * _slowness(member, members)


def _slowness(member: Member[Any], members: Sequence[Member[Any]]) -> float:
    """Return how many times longer a member's steps take than the quickest's; 1 if that may be noise."""
    quickest_s = min((one.step_s for one in members if one.step_s), default=0.0)
    slowness = member.step_s / quickest_s if quickest_s else 1.0
    return slowness if slowness >= SLOW else 1.0


POLICIES: dict[str, Callable[[], Policy]] = {
    "least_queue": lambda: _least_queue,
    "round_robin": _round_robin,
    "random": lambda: random.choice,
}


def policy(balance: str) -> Policy:
    """The policy of a name, with a turn of its own. Raises ConfigError for another name.

    It raises ValueError where there is no member to choose from, and for a member with a queue below 0.
    """
    if balance not in POLICIES:
        raise ConfigError(f"balance: {balance!r:.60} is none of {', '.join(POLICIES)}")
    choose = POLICIES[balance]()

    def choose_checked(members: Sequence[Member[Any]]) -> Member[Any]:
        if not members:
            raise ValueError("there is no replica to choose from")
        if any(member.queue < 0 for member in members):
            raise ValueError("a replica's queue is below 0")
        return choose(members)

    return choose_checked


class StagePool(Generic[R]):
    """One stage's replicas. Requests that find no free slot wait, at most ``queue`` of them: the next one is of the
    owner who has fewest slots, and owners who have as many take turns. A full line has room for an owner who has fewer
    in it than another: the last one of that other's is refused.

    While no replica takes requests they wait ``empty_s`` for one to join. Who gets a request: the worker that it has
    already, else the replica that its session had last (what it computed may still be there), else the policy's choice.
    A preemptible request does not wait, and who waits takes the slots of the one that has held them longest.
    """

    def __init__(
        self,
        info: StageInfo,
        balance: str = "least_queue",
        queue: int = 64,
        empty_s: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info = info
        self._now = now
        self._queue = queue
        self.empty_s = empty_s
        self._choose = policy(balance)
        self._members: dict[str, Member[R]] = {}
        self._waiters: list[_Waiter] = []  # in order of arrival
        self._held = Counter[str]()  # slots that each owner has
        self._round = 0  # of the request that was served last of those in line
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()  # where each was, and when; oldest first
        self._preemptible: dict[asyncio.Timeout, Callable[[], bool]] = {}  # leases, the oldest first

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, replica_id: str) -> bool:
        return replica_id in self._members

    def members(self) -> list[Member[R]]:
        """Return the members of now, in the order in which they joined."""
        return list(self._members.values())

    @property
    def slots(self) -> int:
        """Slots of all replicas that take requests."""
        return sum(member.slots for member in self._members.values() if not member.draining)

    @property
    def leased(self) -> int:
        return sum(len(member.leases) for member in self._members.values())

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def join(self, replica: R) -> None:
        self._members[replica.id] = Member(replica, self.info.slots)
        self._serve_waiters()

    def report(self, replica_id: str, queue: int, step_s: float) -> None:
        """Note a replica's load as its heartbeat reports it. Unknown ids are ignored."""
        if member := self._members.get(replica_id):
            member.queue = queue
            member.step_s = step_s
            member.counted = tuple(member.leases)

    def drain(self, replica_id: str) -> None:
        """Give no new leases on it; those that are out run to their end."""
        member = self._members.get(replica_id)
        if member is not None and not member.draining:
            member.draining = True
            self._empties(member)
            if not self.slots:
                self._wake_all()

    async def emptied(self, replica_id: str) -> None:
        """Wait until a draining replica has no lease, or has left."""
        if member := self._members.get(replica_id):
            await member.empty.wait()

    def leave(self, replica_id: str) -> None:
        """Forget a replica; every lease on it ends in ReplicaLost. Unknown ids are ignored: leaving twice is fine."""
        member = self._members.pop(replica_id, None)
        if member is not None:
            now = asyncio.get_running_loop().time()
            for lease in member.leases:
                self._preemptible.pop(lease, None)
                if not lease.expired():
                    lease.reschedule(now)
            member.empty.set()
            if not member.draining and not self.slots:
                self._wake_all()

    def close(self) -> None:
        """Let nobody join any more: requests that wait for a replica give up. May be called twice."""
        self.empty_s = 0.0
        self._wake_all()

    @asynccontextmanager
    async def lease(
        self,
        prefer: str | None = None,
        session: str | None = None,
        slots: int = 1,
        preemptible: Callable[[], bool] = _never,
        owner: str = "",
    ) -> AsyncGenerator[R]:
        """Lease slots of a replica, preferably in worker ``prefer``, or where the session was, until the block is left.

        While it is ``preemptible``, the lease may end as Preempted: at once without a free slot, later for who waits.

        Raises RequestError when no replica ever has so many, StageUnavailable when none takes any for ``empty_s``,
        Overloaded when the queue is full, and ReplicaLost when the replica leaves before the block does.
        """
        if slots > self.info.slots:
            raise RequestError(f"the request has {slots} roles, and {self.info.name} {self.info.slots} slots")
        member = await self._admit(prefer, session, slots, preemptible, owner)
        # No await from here to the entry in its leases.
        self._bind(session, member)
        scope = asyncio.timeout(None)
        try:
            async with scope:
                member.leases[scope] = slots
                self._held[owner] += slots
                if preemptible():
                    self._preemptible[scope] = preemptible
                self._serve_waiters()  # there may be a second free slot
                yield member.replica
        except TimeoutError:
            if scope.expired() and member.replica.id in self._members:
                raise Preempted(f"another request needed a slot of {self.info.name}") from None
            if scope.expired():
                raise ReplicaLost(f"the {self.info.name} replica {member.replica.id} was lost") from None
            raise
        finally:
            if member.leases.pop(scope, None):
                self._release(owner, slots)
            self._preemptible.pop(scope, None)
            self._empties(member)
            self._serve_waiters()

    def likely(self, session: str) -> R | None:
        """Return the replica for work that takes no slot: where the session was, else the one that has least; None
        without any."""
        members = [member for member in self._members.values() if not member.draining]
        bound = [member for member in members if member.replica.id == self._bound(session)]
        if not members:
            return None
        member = bound[0] if bound else min(members, key=lambda one: len(one.leases))
        self._bind(session, member)
        return member.replica

    def has_room_on(self, worker: str, slots: int = 1) -> bool:
        """Whether a lease preferring this worker would get a slot there without waiting."""
        return not self._waiters and any(m.free(slots) and m.replica.worker == worker for m in self._members.values())

    async def _admit(
        self, prefer: str | None, session: str | None, slots: int, preemptible: Callable[[], bool], owner: str
    ) -> Member[R]:
        """Wait for a free slot."""
        if not self._waiters and (member := self._pick(prefer, session, slots)):
            return member
        if preemptible():
            raise Preempted(f"no slot of {self.info.name} is free")
        self._preempt()
        waiter = self._stand_in_line(owner)
        try:
            while True:
                await self._turn(waiter.turn)
                if waiter.refused:
                    raise self._overloaded()
                if self._next is waiter and (member := self._pick(prefer, session, slots)):
                    self._round = waiter.round
                    return member
        finally:
            self._waiters.remove(waiter)
            self._serve_waiters()  # its turn, if it could not take it, goes to the next

    def _stand_in_line(self, owner: str) -> _Waiter:
        """Let a request wait. Raises Overloaded."""
        line = [waiter for waiter in self._waiters if not waiter.refused]
        if len(line) >= self._queue:
            waiting = Counter(waiter.owner for waiter in line)
            most = max(waiting.values(), default=0)
            if waiting[owner] + 1 >= most:
                raise self._overloaded()
            last = next(waiter for waiter in reversed(line) if waiting[waiter.owner] == most)
            last.refused = True
            last.turn.set()
        before = (waiter.round for waiter in self._waiters if waiter.owner == owner)
        waiter = _Waiter(owner, max(before, default=self._round) + 1)
        self._waiters.append(waiter)
        self._serve_waiters()  # it may be before who has been called
        return waiter

    def _overloaded(self) -> Overloaded:
        return Overloaded(f"{self.info.name} is full and {self._queue} requests wait already; try again later")

    @property
    def _next(self) -> _Waiter:
        """Return whose turn it is: of those whose owner has fewest slots, the first of the earliest round."""
        return min(self._waiters, key=lambda waiter: (waiter.refused, self._held[waiter.owner], waiter.round))

    def _release(self, owner: str, slots: int) -> None:
        self._held[owner] -= slots
        if not self._held[owner]:
            del self._held[owner]

    def _preempt(self) -> None:
        """Take the slots of the request that has held them longest, of those that may be preempted."""
        for scope, preemptible in tuple(self._preemptible.items()):
            del self._preemptible[scope]
            if preemptible() and not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())
                return

    async def _turn(self, turn: asyncio.Event) -> None:
        """Wait to be woken; while no replica takes requests, for ``empty_s`` at most. Raises StageUnavailable."""
        try:
            async with asyncio.timeout(None if self.slots else self.empty_s):
                await turn.wait()
        except TimeoutError:
            if not self.slots:
                raise StageUnavailable(f"no replica of {self.info.name} is up; try again soon") from None
        turn.clear()

    def _pick(self, prefer: str | None, session: str | None, slots: int) -> Member[R] | None:
        free = [member for member in self._members.values() if member.free(slots)]
        if near := [member for member in free if member.replica.worker == prefer]:
            return near[0]
        bound = self._bound(session)
        if known := [member for member in free if member.replica.id == bound and _slowness(member, free) == 1.0]:
            return known[0]
        return self._choose(free) if free else None

    def _bound(self, session: str | None) -> str | None:
        """Return the id of the replica that the session had last; None where it had none lately."""
        known = self._sessions.get(session or "")
        return known[0] if known and self._now() - known[1] < BOUND_S else None

    def _bind(self, session: str | None, member: Member[R]) -> None:
        if not session:
            return
        self._sessions.pop(session, None)
        self._sessions[session] = member.replica.id, self._now()
        for _ in range(2):  # one more than come, so that they get fewer again
            _, bound_s = next(iter(self._sessions.values()))
            if self._now() - bound_s >= BOUND_S or len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)

    @staticmethod
    def _empties(member: Member[R]) -> None:
        if member.draining and not member.leases:
            member.empty.set()

    def _serve_waiters(self) -> None:
        """Wake the next in line if there is a slot for it."""
        if self._waiters and any(member.free() for member in self._members.values()):
            self._next.turn.set()

    def _wake_all(self) -> None:
        """No replica takes requests any more: the patience of all who wait counts from now on, once."""
        for waiter in self._waiters:
            waiter.turn.set()
