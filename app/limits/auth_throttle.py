"""Throttle for wrong API keys: a burst of attempts for each address, then one every few seconds.

One token bucket for each address, in a bounded table. An attacker with many addresses can only push out recorded
failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from app.client_address import subscriber
from app.limits.lru_table import LruTable
from app.limits.rate_limiter import TokenBucket

AT_ONCE = 20
"""Wrong keys that one address may send in a burst: a page that retries automatically sends a few each minute."""

EVERY_S = 3.0
"""Seconds between further attempts: 28,800 a day, while a random key has at least 2^100 possible values."""


ADDRESSES = 4096
"""Addresses that the table holds at most."""


class AuthThrottle:
    """The failures of one server's clients. ``now`` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic, addresses: int = ADDRESSES) -> None:
        self.now = now
        self._failures = LruTable[str, TokenBucket](addresses)

    def wait_s(self, address: str) -> float:
        """Return the seconds until this address may try a key again; 0 if it may now."""
        bucket = self._failures.get(subscriber(address))
        return 0.0 if bucket is None else bucket.wait_s(self.now())

    def failed(self, address: str) -> None:
        """Record a wrong key from this address."""
        who = subscriber(address)
        bucket = self._failures.get(who) or TokenBucket(1 / EVERY_S, AT_ONCE - 1)
        bucket.take(1, self.now())
        self._failures[who] = bucket
