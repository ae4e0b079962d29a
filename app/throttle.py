"""How many wrong keys an address may try: some at once, then one every few seconds. Knows no key and no socket.

One number an address, in a table that never grows beyond its bound: asking and telling cost the same however many
addresses there are, and whoever floods it from many forgets only failures.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from app.addresses import subscriber

AT_ONCE = 20
"""A person mistypes a few times, and a page that tries again by itself does so some times a minute."""

EVERY_S = 3.0
"""Then one try in so many seconds: 28 800 a day, of at least 2^100 that a sane key has."""

ADDRESSES = 4096


class Throttle:
    """``now`` is monotonic seconds. Source of the arithmetic: the generic cell rate algorithm (ITU-T I.371)."""

    def __init__(self, now: Callable[[], float] = time.monotonic, addresses: int = ADDRESSES) -> None:
        self.now, self._most = now, addresses
        self._paid_s: OrderedDict[str, float] = OrderedDict()  # when an address's failures are all forgotten

    def wait_s(self, address: str) -> float:
        """Seconds until this address may try a key again; 0: it may."""
        paid_s = self._paid_s.get(subscriber(address), 0.0)
        # To the microsecond: sums of fractions are a little above or below what was added up.
        return max(0.0, round(paid_s - self.now() - (AT_ONCE - 1) * EVERY_S, 6))

    def failed(self, address: str) -> None:
        """It tried a wrong one."""
        who, now_s = subscriber(address), self.now()
        self._paid_s[who] = max(now_s, self._paid_s.get(who, 0.0)) + EVERY_S
        self._paid_s.move_to_end(who)
        if len(self._paid_s) > self._most:
            self._paid_s.popitem(last=False)
