"""Rate limits of one client: token buckets for its messages, and for the bytes in each direction.

The clock is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

BURST_S = 10.0
"""Size of each burst in seconds of the rate: a long history, or a minute of audio that a laptop had buffered."""

PATIENCE_S = 60.0
"""Seconds that a client may exceed its message rate. It is slowed meanwhile, and disconnected afterwards."""

MESSAGE_BYTES = 64
"""Memory overhead of a queued message, in addition to its own bytes."""


TALK_BYTES_S = 400_000
"""Bytes per second of a client that only talks, with a burst of a quarter second: 24 kHz speech in base64 needs 64,000,
and two camera frames per second need the rest. A client within this rate never waits for a shared budget, so uploads
from the same key or address do not delay speech."""


class TokenBucket:
    """A token bucket: ``burst`` at once, then ``rate_s`` per second. It may be overdrawn.

    Source of the arithmetic: the generic cell rate algorithm (ITU-T I.371). Times are monotonic seconds.
    """

    def __init__(self, rate_s: float, burst: float) -> None:
        self._rate_s = rate_s
        self._burst_s = burst / rate_s
        self._paid_s = float("-inf")  # when the bucket is full again

    def take(self, amount: float, now_s: float) -> None:
        """Take tokens, even if that overdraws the bucket."""
        self._paid_s = max(now_s, self._paid_s) + amount / self._rate_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the bucket is no longer overdrawn; 0 if it is not."""
        # To the microsecond: sums of fractions are a little above or below the exact sum.
        return max(0.0, round(self._paid_s - now_s - self._burst_s, 6))

    def owed_s(self, now_s: float) -> float:
        """Return the seconds until the bucket is full."""
        return max(0.0, self._paid_s - now_s)

    def free(self, now_s: float) -> float:
        """Return how many tokens are left; negative if the bucket is overdrawn."""
        return min(self._burst_s, self._burst_s - (self._paid_s - now_s)) * self._rate_s


class Shared(Protocol):
    """A budget of bytes that several clients share, such as all clients of one key."""

    def take(self, size: int, now_s: float) -> float:
        """Take bytes, even beyond the budget. Returns the seconds until the budget is no longer overdrawn."""
        ...


class ByteLimiter:
    """The byte limit of one client in one direction: its own limit, and the budgets that it shares with other clients.

    Clients that share a budget wait in turn: each for its own bytes and for the bytes of those before it. A client that
    needs no more than TALK_BYTES_S does not wait for the budget.
    """

    def __init__(self, bytes_s: float) -> None:
        self._own = TokenBucket(bytes_s, bytes_s * BURST_S)
        self._talk = TokenBucket(TALK_BYTES_S, TALK_BYTES_S / 4)
        self._shared: Sequence[Shared] = ()
        self._nobodys = 0  # bytes counted before a budget was shared
        self._turn_s = float("-inf")  # when its turn in the shared budget comes

    def share(self, budgets: Sequence[Shared], now_s: float) -> None:
        """Charge these budgets too, including the bytes counted before the client was known."""
        if list(budgets) != list(self._shared):
            self._shared = budgets
            self._take_shared(0, now_s)

    def take(self, size: int, now_s: float) -> None:
        """Charge bytes, even if that overdraws the limit."""
        self._own.take(size, now_s)
        self._talk.take(size, now_s)
        self._take_shared(size, now_s)

    def _take_shared(self, size: int, now_s: float) -> None:
        self._nobodys += size
        if self._shared:
            wait_s = max(one.take(self._nobodys, now_s) for one in self._shared)
            self._turn_s = now_s + wait_s if self._talk.wait_s(now_s) > 0 else float("-inf")
            self._nobodys = 0

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until no limit is overdrawn."""
        return max(self._own.wait_s(now_s), self._turn_s - now_s, 0.0)

    def ahead_s(self, now_s: float) -> float:
        """Return the seconds of silence that would bring the client back to TALK_BYTES_S."""
        return self._talk.wait_s(now_s)


class RateLimiter:
    """The rate limiter of one client: its messages, the bytes it sends, and the bytes that the server sends to it.

    Empty frames, pings and pongs count as messages. A client that makes the server send too much is read more slowly,
    since its messages are what the server answers.
    """

    def __init__(self, messages_s: float, bytes_s: float) -> None:
        self._messages_s = messages_s
        self._messages = TokenBucket(messages_s, messages_s * BURST_S)
        self._slowed_s: float | None = None  # since when it exceeds its message rate
        self.received = ByteLimiter(bytes_s)
        self.sent = ByteLimiter(bytes_s)

    def spend(self, messages: int, size: int, now_s: float) -> None:
        """Charge received messages, ``size`` bytes in all."""
        self._messages.take(messages, now_s)
        self.received.take(size, now_s)
        free = self._messages.free(now_s)
        if free >= self._messages_s:  # a second's worth has been refilled
            self._slowed_s = None
        elif free < 0 and self._slowed_s is None:
            self._slowed_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds to wait before reading more; 0 to read now."""
        return max(self._messages.wait_s(now_s), self.received.wait_s(now_s), self.sent.wait_s(now_s))

    def ahead_s(self, now_s: float) -> float:
        """Return the seconds of silence that would bring the client back to its message rate and to TALK_BYTES_S.

        The scheduler of the event loop serves clients with a small value first.
        """
        return max(self._messages.owed_s(now_s), self.received.ahead_s(now_s))

    def goes_on(self, now_s: float) -> bool:
        """Return whether the client has exceeded its message rate for PATIENCE_S.

        Excess bytes only slow the client down.
        """
        return self._slowed_s is not None and now_s - self._slowed_s > PATIENCE_S
