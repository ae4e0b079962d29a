"""Load balancing: the choice of a replica for a request. Each pool has one policy, named by the configuration."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from engine.errors import ConfigError

SLOW = 1.5  # the ratio of step times from which a replica counts as slower: smaller differences are noise


class Replica(Protocol):
    """One host of a stage. ``id`` is unique for ever; ``worker`` is the id of its process."""

    @property
    def id(self) -> str: ...

    @property
    def worker(self) -> str: ...


R = TypeVar("R", bound=Replica)


@dataclass(eq=False, slots=True)
class Member(Generic[R]):
    """A replica in a pool, with its leases and its last reported load."""

    replica: R
    slots: int
    draining: bool = False
    leases: dict[asyncio.Timeout, int] = field(default_factory=dict[asyncio.Timeout, int])
    """Current leases, and the number of slots that each takes."""
    queue: int = 0
    """Requests that were ready to step at the last heartbeat and had to wait."""
    counted: tuple[asyncio.Timeout, ...] = ()
    """The leases at the last heartbeat."""
    step_s: float = 0.0
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the member is draining and has no lease left."""

    def free(self, slots: int = 1) -> bool:
        return not self.draining and sum(self.leases.values()) + slots <= self.slots

    @property
    def queued(self) -> int:
        """Upper bound of the reported queue that can still be waiting: leases of that time that have not ended."""
        return min(self.queue, sum(lease in self.leases for lease in self.counted)) if self.queue else 0


Policy = Callable[[Sequence[Member[Any]]], Member[Any]]


def _round_robin() -> Policy:
    turns = itertools.count()
    return lambda members: members[next(turns) % len(members)]


def _least_queue(members: Sequence[Member[Any]]) -> Member[Any]:
    """Choose the member that should reach a new request soonest; ties are broken at random."""
    waits = [_wait(member, members) for member in members]
    return random.choice([member for member, wait in zip(members, waits, strict=True) if wait == min(waits)])


def _wait(member: Member[Any], members: Sequence[Member[Any]]) -> float:
    """Estimate the work before a new request: leases and queued requests, weighted by how slow the steps are."""
    return (1 + len(member.leases) + member.queued) * slowness(member, members)


def slowness(member: Member[Any], members: Sequence[Member[Any]]) -> float:
    """Return the ratio of a member's step time to that of the fastest member; 1 if the difference may be noise."""
    quickest_s = min((one.step_s for one in members if one.step_s), default=0.0)
    ratio = member.step_s / quickest_s if quickest_s else 1.0
    return ratio if ratio >= SLOW else 1.0


POLICIES: dict[str, Callable[[], Policy]] = {
    "least_queue": lambda: _least_queue,
    "round_robin": _round_robin,
    "random": lambda: random.choice,
}


def policy(balance: str) -> Policy:
    """Return a new policy by its name. Raises ConfigError for an unknown name.

    The policy raises ValueError for an empty list of members, or a member with a negative queue.
    """
    if balance not in POLICIES:
        raise ConfigError(f"balance: {balance!r:.60} is not one of {', '.join(POLICIES)}")
    choose = POLICIES[balance]()

    def choose_checked(members: Sequence[Member[Any]]) -> Member[Any]:
        if not members:
            raise ValueError("there is no replica to choose from")
        if any(member.queue < 0 for member in members):
            raise ValueError("a replica's queue is below 0")
        return choose(members)

    return choose_checked
