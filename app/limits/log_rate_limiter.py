"""Rate limits on log lines: for each client and event type, and for all lines together.

Dropped lines are counted, and the next line about the same client reports the number. Never reads the clock.
"""

from __future__ import annotations

from app.limits.lru_table import LruTable
from app.limits.rate_limiter import TokenBucket

EACH_S, EACH_AT_ONCE = 1.0, 20
"""Lines per second, and in a burst, of one event about one client. Further lines would say nothing new."""

ALL_S, ALL_AT_ONCE = 100.0, 1000
"""Lines per second, and in a burst, of one event that concerns no client. All events together may have ten times as
many, enough for 64 clients that connect and disconnect.
"""

SUBJECTS = ("session", "call", "answer", "client", "request")
"""Fields that name the subject of a line; the first one present counts.

A refusal is counted by address, so that a stranger's refusals suppress no lines about other clients. An admitted answer
is counted by its own id, so that none of a key's many answers loses its line.
"""

NOBODY = "-"
"""The value of a field that does not apply."""

MOST = 4096
"""Maximum number of tracked subjects and events; the oldest is forgotten.

A subject whose bucket is full again has nothing to track, and is removed as further lines arrive.
"""

RESTED = 2
"""Oldest entries checked for each line. A line adds at most one entry, so the table shrinks again."""


class LogRateLimiter:
    """The limits on the log lines of one process."""

    def __init__(self) -> None:
        self._all = TokenBucket(10 * ALL_S, 10 * ALL_AT_ONCE)
        self._each = LruTable[tuple[str, str], TokenBucket](MOST)
        self._left_out = LruTable[str, int](MOST)

    def admit(self, event: str, subject: str, now_s: float) -> int | None:
        """Return the number of dropped lines before this one if it may be written; None if this line is dropped too."""
        self._forget_rested(now_s)
        each = self._bucket(event, subject)
        if each.free(now_s) < 1 or self._all.free(now_s) < 1:
            self._left_out[subject] = self._left_out.get(subject, 0) + 1
            return None
        each.take(1, now_s)
        self._all.take(1, now_s)
        return self._left_out.pop(subject, 0)

    def _forget_rested(self, now_s: float) -> None:
        """Delete the oldest entries whose buckets are full.

        Otherwise the entries of ended sessions would stay, scattered over memory, until MOST others had arrived.
        """
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
    """Return the subject of a line, or "" if it has none."""
    return next((str(fields[name]) for name in SUBJECTS if fields.get(name, NOBODY) not in (NOBODY, "", None)), "")
