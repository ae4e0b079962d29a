"""Shared bandwidth limits: one token bucket for all clients of a key, and one for all clients of an address.

They bound the sum of many connections; each also has its own ``RateLimiter``. Clients beyond the shared limit are read
more slowly, in turn. Clients that only speak are not slowed down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.client_address import is_local, subscriber
from app.limits.lru_table import LruTable
from app.limits.principal import Principal
from app.limits.rate_limiter import BURST_S, RateLimiter, TokenBucket
from app.settings import Limits

MOST = 4096
"""Addresses that the table holds at most."""


@dataclass(slots=True, eq=False)
class BandwidthLimit:
    """The bandwidth limit of one key or address, and the bytes received for it so far."""

    bucket: TokenBucket
    received: int = 0
    slowed: int = 0
    """How often bytes arrived while the bucket was overdrawn."""

    def take(self, size: int, now_s: float) -> float:
        """Charge received bytes. Returns the seconds until the bucket is no longer overdrawn."""
        self.received += size
        self.bucket.take(size, now_s)
        wait_s = self.bucket.wait_s(now_s)
        self.slowed += wait_s > 0
        return wait_s


class BandwidthLimits:
    """The bandwidth limits of one server. ``now`` returns monotonic seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._keys = dict[str, BandwidthLimit]()
        self._addresses = LruTable[str, BandwidthLimit](MOST)

    def charge(self, pace: RateLimiter, caller: Principal) -> None:
        """Charge everything that a connection sends from now on to its caller's key and address."""
        budgets = [self._of_key(caller.owner)]
        # This machine's own address has no limit. A local proxy that ``trusted_proxies`` omits counts as that address.
        if caller.address and not is_local(caller.address):
            budgets.append(self._of_address(subscriber(caller.address)))
        pace.share(budgets, self._now())

    def received(self) -> Iterator[tuple[str, int, int]]:
        """Yield each key's name, the bytes received, and how often a client had to wait."""
        for owner, budget in self._keys.items():
            yield owner, budget.received, budget.slowed

    def _of_key(self, owner: str) -> BandwidthLimit:
        if owner not in self._keys:
            self._keys[owner] = _budget(self._limits.key_received_mb_s)
        return self._keys[owner]

    def _of_address(self, address: str) -> BandwidthLimit:
        budget = self._addresses.get(address) or _budget(self._limits.address_received_mb_s)
        self._addresses[address] = budget
        return budget


def _budget(mb_s: float) -> BandwidthLimit:
    return BandwidthLimit(TokenBucket(mb_s * 1e6, mb_s * 1e6 * BURST_S))
