"""Limits on wrong keys: an address may try some at once, then one every few seconds. Knows no key and no socket.

One bucket an address, in a table that never grows beyond its bound: asking and telling cost the same however many
addresses there are, and whoever floods it from many forgets only failures.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from app.addresses import subscriber
from app.pace import Bucket

AT_ONCE = 20
"""A person mistypes a few times, and a page that tries again by itself does so some times a minute."""

EVERY_S = 3.0
"""Then one try in so many seconds: 28 800 a day, of at least 2^100 that a sane key has."""

ADDRESSES = 4096


class Throttle:
    """``now`` is monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic, addresses: int = ADDRESSES) -> None:
        self.now = now
        self._most = addresses
        self._failures: OrderedDict[str, Bucket] = OrderedDict()  # each address's

    def wait_s(self, address: str) -> float:
        """Seconds until this address may try a key again; 0: it may."""
        bucket = self._failures.get(subscriber(address))
        return 0.0 if bucket is None else bucket.wait_s(self.now())

    def failed(self, address: str) -> None:
        """It tried a wrong one."""
        who = subscriber(address)
        self._failures.setdefault(who, Bucket(1 / EVERY_S, AT_ONCE - 1)).take(1, self.now())
        self._failures.move_to_end(who)
        if len(self._failures) > self._most:
            self._failures.popitem(last=False)
