"""Limits on log lines: for each client and kind of event some at once, then some a second, and so for all.

Lines that are left out are counted, and the next line about the same client tells how many. Knows no clock and no line.
"""

from __future__ import annotations

from app.limits.lru_table import LruTable
from app.limits.rate_limiter import TokenBucket

EACH_S, EACH_AT_ONCE = 1.0, 20
"""Lines of one event about one client: whoever reads the log has understood by then."""

ALL_S, ALL_AT_ONCE = 100.0, 1000
"""Lines a second, and at once, of one event that are about no client; of all events ten times as many: 64 clients who
come and go."""

SUBJECTS = ("session", "call", "answer", "client", "request")
"""The fields that say whom a line is about, the first one that it has: a refusal is about an address, so that a
stranger leaves out no line of another's. What was let in is about itself, so that no answer's line is left out, however
many a key has of them."""

NOBODY = "-"
"""The value of a field where there is none."""

MOST = 4096
"""The most clients and kinds that are counted; the oldest is forgotten. One who may write all at once again has nothing
to be counted, and is forgotten as the next lines come."""

RESTED = 2
"""So many of the oldest are looked at with each line: the table grows by one at most, and so it shrinks again."""


class LogRateLimiter:
    """The limits on the log lines of one process."""

    def __init__(self) -> None:
        self._all = TokenBucket(10 * ALL_S, 10 * ALL_AT_ONCE)
        self._each = LruTable[tuple[str, str], TokenBucket](MOST)
        self._left_out = LruTable[str, int](MOST)

    def admit(self, event: str, subject: str, now_s: float) -> int | None:
        """Whether such a line may be written: how many about this subject were left out before it, or None for no."""
        self._forget_rested(now_s)
        each = self._bucket(event, subject)
        if each.free(now_s) < 1 or self._all.free(now_s) < 1:
            self._left_out[subject] = self._left_out.get(subject, 0) + 1
            return None
        each.take(1, now_s)
        self._all.take(1, now_s)
        return self._left_out.pop(subject, 0)

    def _forget_rested(self, now_s: float) -> None:
        """Forget the oldest of whom nothing is left to count: sessions that ended would stay, scattered over memory
        that is free for the rest, until MOST others had come."""
        for _ in range(RESTED):
            oldest = next(iter(self._each), None)
            if oldest is None or self._each[oldest].owed_s(now_s) > 0:
                return
            del self._each[oldest]

    def _bucket(self, event: str, subject: str) -> TokenBucket:
        bucket = self._each.get((event, subject))
        if bucket is None:
            bucket = TokenBucket(EACH_S, EACH_AT_ONCE) if subject else TokenBucket(ALL_S, ALL_AT_ONCE)
        self._each[event, subject] = bucket
        return bucket


def subject_of(fields: dict[str, object]) -> str:
    """Return the client that a line is about; "" for none."""
    return next((str(fields[name]) for name in SUBJECTS if fields.get(name, NOBODY) not in (NOBODY, "", None)), "")
