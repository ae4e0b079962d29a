"""Shared bandwidth limits: token buckets for all clients of a key, and for all clients of an address.

These buckets bound the sum of many connections, in each direction; each connection also has its own ``RateLimiter``.
Clients beyond a shared limit are read more slowly, in turn. Clients that only speak are not slowed down.
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
    """The bandwidth limit of one key or address in one direction, and the bytes counted so far."""

    bucket: TokenBucket
    bytes: int = 0
    slowed: int = 0
    """How often bytes were counted while the bucket was overdrawn."""

    def take(self, size: int, now_s: float) -> float:
        """Charge bytes. Returns the seconds until the bucket is no longer overdrawn."""
        self.bytes += size
        self.bucket.take(size, now_s)
        wait_s = self.bucket.wait_s(now_s)
        self.slowed += wait_s > 0
        return wait_s


@dataclass(frozen=True, slots=True, eq=False)
class Bandwidth:
    """The two limits of one key or address: for the bytes received from its clients, and for the bytes sent to them."""

    received: BandwidthLimit
    sent: BandwidthLimit


class BandwidthLimits:
    """The bandwidth limits of one server. ``now`` returns monotonic seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._keys = dict[str, Bandwidth]()
        self._addresses = LruTable[str, Bandwidth](MOST)

    def charge(self, pace: RateLimiter, caller: Principal) -> None:
        """Charge everything that a connection sends and receives from now on to its caller's key and address."""
        budgets = [self._of_key(caller.owner)]
        # This machine's own address has no limit. A local proxy that ``trusted_proxies`` omits counts as that address.
        if caller.address and not is_local(caller.address):
            budgets.append(self._of_address(subscriber(caller.address)))
        pace.received.share([one.received for one in budgets], self._now())
        pace.sent.share([one.sent for one in budgets], self._now())

    def usage(self) -> Iterator[tuple[str, Bandwidth]]:
        """Yield each key's name and bandwidth."""
        yield from self._keys.items()

    def _of_key(self, owner: str) -> Bandwidth:
        if owner not in self._keys:
            self._keys[owner] = _bandwidth(self._limits.key_received_mb_s)
        return self._keys[owner]

    def _of_address(self, address: str) -> Bandwidth:
        budget = self._addresses.get(address) or _bandwidth(self._limits.address_received_mb_s)
        self._addresses[address] = budget
        return budget


def _bandwidth(mb_s: float) -> Bandwidth:
    received, sent = (BandwidthLimit(TokenBucket(mb_s * 1e6, mb_s * 1e6 * BURST_S)) for _ in range(2))
    return Bandwidth(received, sent)
