"""The replicas of one stage: membership and leases. It routes requests and holds no state of them.

Membership changes only by ``join``, ``drain`` and ``leave``. A leave expires the timeout of every lease, so its holder
gets ReplicaLost at once, wherever it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Generic

from engine.control.balance import Member, R, policy, slowness
from engine.control.fair_queue import FairQueue
from engine.core import StageInfo
from engine.errors import Overloaded, Preempted, ReplicaLost, RequestError, StageUnavailable

SESSIONS = 4096  # remembered session bindings: far more than open sessions; the oldest is forgotten first
BOUND_S = 600.0
"""Seconds for which a session stays bound to a replica after its last request.

By then most sessions have ended (the pool is not notified), or the replica has evicted their prefixes.
"""


class StagePool(Generic[R]):
    """One stage's replicas. Requests that find no free slot wait in a FairQueue of at most ``queue`` requests.

    While no replica accepts requests, they wait up to ``empty_s`` seconds for one to join. Replicas are preferred in
    this order: the worker that the request already uses, the replica that its session used last (which may still cache
    the session's prefix), the policy's choice. A preemptible request never waits. When another request has to wait, the
    oldest preemptible lease ends.
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
        self.empty_s = empty_s
        self._now = now
        self._queue = FairQueue(info.name, queue)
        self._choose = policy(balance)
        self._members: dict[str, Member[R]] = {}
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()  # replica id and time; oldest first
        self._preemptible: dict[asyncio.Timeout, Callable[[], bool]] = {}  # leases, the oldest first

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, replica_id: str) -> bool:
        return replica_id in self._members

    def members(self) -> list[Member[R]]:
        """Return the current members, in the order in which they joined."""
        return list(self._members.values())

    @property
    def slots(self) -> int:
        """Slots of all replicas that accept requests."""
        return sum(member.slots for member in self._members.values() if not member.draining)

    @property
    def leased(self) -> int:
        return sum(len(member.leases) for member in self._members.values())

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def join(self, replica: R, slots: int | None = None) -> None:
        """Add a replica, with its own number of slots if that differs from the stage's ``info``."""
        self._members[replica.id] = Member(replica, self.info.slots if slots is None else slots)
        self._wake_next()

    def report(self, replica_id: str, queue: int, step_s: float) -> None:
        """Record a replica's load from its heartbeat. Unknown ids are ignored."""
        if member := self._members.get(replica_id):
            member.queue = queue
            member.step_s = step_s
            member.counted = tuple(member.leases)

    def drain(self, replica_id: str) -> None:
        """Grant no new leases on a replica. Current leases run to their end."""
        member = self._members.get(replica_id)
        if member is not None and not member.draining:
            member.draining = True
            _set_if_empty(member)
            self._wake_if_unavailable()

    async def emptied(self, replica_id: str) -> None:
        """Wait until a draining replica has no lease, or has left."""
        if member := self._members.get(replica_id):
            await member.empty.wait()

    def leave(self, replica_id: str) -> None:
        """Remove a replica. Every lease on it ends with ReplicaLost. Unknown ids are ignored."""
        member = self._members.pop(replica_id, None)
        if member is not None:
            now = asyncio.get_running_loop().time()
            for lease in member.leases:
                self._preemptible.pop(lease, None)
                if not lease.expired():
                    lease.reschedule(now)
            member.empty.set()
            if not member.draining:
                self._wake_if_unavailable()

    def close(self) -> None:
        """Accept no new replicas: requests that wait for one fail now. May be called twice."""
        self.empty_s = 0.0
        self._queue.wake_all()

    @asynccontextmanager
    async def lease(
        self,
        prefer: str | None = None,
        session: str | None = None,
        slots: int = 1,
        preemptible: Callable[[], bool] = lambda: False,
        owner: str = "",
    ) -> AsyncGenerator[R]:
        """Lease slots of a replica until the block is left.

        Args:
            prefer: The id of the worker that should host the replica.
            session: The session. Its last replica is preferred next.
            slots: The number of slots, all on the same replica.
            preemptible: Whether the lease may end with Preempted: at once if no slot is free, later if another request
                has to wait.
            owner: The client or user that the request belongs to, which determines its order in the queue.

        Raises:
            RequestError: No replica has that many slots.
            StageUnavailable: No replica accepted requests within ``empty_s``.
            Overloaded: The queue is full, or a duplex stage has no free slot: its sessions last too long to wait.
            Preempted: The lease was preemptible and another request needed its slots.
            ReplicaLost: The replica left while the lease was held.
        """
        if slots > self.info.slots:
            raise RequestError(f"the request has {slots} roles, but {self.info.name} has only {self.info.slots} slots")
        member = await self._admit(prefer, session, slots, preemptible, owner)
        # No await until the lease is entered in ``leases``: the slot would not be reserved.
        self._bind(session, member)
        scope = asyncio.timeout(None)
        try:
            async with scope:
                member.leases[scope] = slots
                self._queue.hold(owner, slots)
                if preemptible():
                    self._preemptible[scope] = preemptible
                self._wake_next()  # there may be a second free slot
                yield member.replica
        except TimeoutError:
            if scope.expired() and member.replica.id in self._members:
                raise Preempted(f"another request needed a slot of {self.info.name}") from None
            if scope.expired():
                raise ReplicaLost(f"the {self.info.name} replica {member.replica.id} was lost") from None
            raise
        finally:
            if member.leases.pop(scope, None):
                self._queue.release(owner, slots)
            self._preemptible.pop(scope, None)
            _set_if_empty(member)
            self._wake_next()

    def likely(self, session: str) -> R | None:
        """Return the replica for work that takes no slot: the session's last one, or else the least loaded.

        None if no replica accepts requests.
        """
        members = [member for member in self._members.values() if not member.draining]
        if not members:
            return None
        bound = [member for member in members if member.replica.id == self._bound(session)]
        member = bound[0] if bound else min(members, key=lambda one: len(one.leases))
        self._bind(session, member)
        return member.replica

    def has_room_on(self, worker: str, slots: int = 1) -> bool:
        """Whether a lease preferring this worker would get a slot there without waiting."""
        return not self._queue and any(m.free(slots) and m.replica.worker == worker for m in self._members.values())

    async def _admit(
        self, prefer: str | None, session: str | None, slots: int, preemptible: Callable[[], bool], owner: str
    ) -> Member[R]:
        """Wait for a free slot."""
        if not self._queue and (member := self._pick(prefer, session, slots)):
            return member
        if preemptible():
            raise Preempted(f"no slot of {self.info.name} is free")
        if self.info.facets.duplex is not None and self.slots:
            raise Overloaded(f"All {self.slots} sessions that {self.info.name} can hold are in use. Try again later.")
        self._preempt()
        waiter = self._queue.join(owner)
        member = None
        self._wake_next()  # the new request may have priority over the one that was woken
        try:
            while member is None:
                await self._woken(waiter.turn)
                if waiter.rejected:
                    raise self._queue.overloaded()
                if self._queue.next is waiter:
                    member = self._pick(prefer, session, slots)
            return member
        finally:
            self._queue.leave(waiter, served=member is not None)
            self._wake_next()  # if it did not use its turn, the next request gets it

    def _preempt(self) -> None:
        """End the oldest lease that is still preemptible."""
        for scope, preemptible in tuple(self._preemptible.items()):
            del self._preemptible[scope]
            if preemptible() and not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())
                return

    async def _woken(self, turn: asyncio.Event) -> None:
        """Wait to be woken; while no replica accepts requests, at most ``empty_s`` seconds. Raises StageUnavailable."""
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
        if known := [member for member in free if member.replica.id == bound and slowness(member, free) == 1.0]:
            return known[0]
        return self._choose(free) if free else None

    def _bound(self, session: str | None) -> str | None:
        """Return the id of the session's last replica; None if it had none in the last BOUND_S seconds."""
        known = self._sessions.get(session or "")
        return known[0] if known and self._now() - known[1] < BOUND_S else None

    def _bind(self, session: str | None, member: Member[R]) -> None:
        if not session:
            return
        self._sessions.pop(session, None)
        self._sessions[session] = member.replica.id, self._now()
        for _ in range(2):  # more than was added, so that the number shrinks again
            _, bound_s = next(iter(self._sessions.values()))
            if self._now() - bound_s >= BOUND_S or len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)

    def _wake_next(self) -> None:
        """Wake the next request in the queue if there is a slot for it."""
        if self._queue and any(member.free() for member in self._members.values()):
            self._queue.next.turn.set()

    def _wake_if_unavailable(self) -> None:
        """If no replica accepts requests now, start the ``empty_s`` timeout of all waiting requests."""
        if not self.slots:
            self._queue.wake_all()


def _set_if_empty(member: Member[R]) -> None:
    if member.draining and not member.leases:
        member.empty.set()
