"""Budgets of bytes a second, with a burst: one for all clients of a key, one for all of an address.

Each connection has its own pace (``pace``); many of them would be as many times that. Whoever sends more than the
budget holds is read more slowly, in turn with the others who share it; who only talks is not. Knows no socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.addresses import is_local, subscriber
from app.callers import Caller
from app.limits.lru_table import LruTable
from app.pace import BURST_S, Bucket, Pace
from app.settings import Limits

MOST = 4096
"""Addresses that are remembered; the oldest is forgotten."""


@dataclass(slots=True, eq=False)
class Budget:
    """The budget of one key, or of one address, in bytes; and what was received for it so far."""

    bucket: Bucket
    received: int = 0
    slowed: int = 0
    """The number of times that something came when nothing of it was left."""

    def take(self, size: int, now_s: float) -> float:
        """Count so many bytes that came, and return the seconds until they are paid for."""
        self.received += size
        self.bucket.take(size, now_s)
        wait_s = self.bucket.wait_s(now_s)
        self.slowed += wait_s > 0
        return wait_s


class Budgets:
    """The budgets of one server. ``now`` is monotonic seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._keys = dict[str, Budget]()
        self._addresses = LruTable[str, Budget](MOST)

    def charge(self, pace: Pace, caller: Caller) -> None:
        """Charge to its caller what a connection at this pace sends from now on."""
        budgets = [self._of_key(caller.owner)]
        # This machine's own user may take all of it. A proxy here that no setting names is taken for that user.
        if caller.address and not is_local(caller.address):
            budgets.append(self._of_address(subscriber(caller.address)))
        pace.share(budgets, self._now())

    def received(self) -> Iterator[tuple[str, int, int]]:
        """Yield for each key its name, the bytes that came, and how often a client was made to wait."""
        for owner, budget in self._keys.items():
            yield owner, budget.received, budget.slowed

    def _of_key(self, owner: str) -> Budget:
        if owner not in self._keys:
            self._keys[owner] = _budget(self._limits.key_received_mb_s)
        return self._keys[owner]

    def _of_address(self, address: str) -> Budget:
        budget = self._addresses.get(address) or _budget(self._limits.address_received_mb_s)
        self._addresses[address] = budget
        return budget


def _budget(mb_s: float) -> Budget:
    return Budget(Bucket(mb_s * 1e6, mb_s * 1e6 * BURST_S))
