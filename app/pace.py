"""The amount that a client may send: so much at once, then so much a second. Knows no clock, no socket and no
session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

BURST_S = 10.0
"""Seconds of its budget that a client may use at once: a history, a minute of sound that waited in a laptop."""

PATIENCE_S = 60.0
"""Seconds that a client may go on sending more than its budget: it is slowed all the time, and left after that."""

MESSAGE_BYTES = 64
"""The cost of a message beside its bytes where it waits: an empty one takes room, too."""


TALK_BYTES_S = 400_000
"""Bytes a second of one who talks, and a quarter of them at once: speech of 24 kHz in base64 has 64,000, and two
pictures a second of a camera the rest. They wait for no budget that is shared, and do not make their sender one who is
ahead: whoever talks waits neither behind megabytes that somebody else of the same key or address sends, nor behind
their parsing."""


class Bucket:
    """``burst`` at once, then ``rate_s`` a second. More may be taken, and is then owed.

    Source of the arithmetic: the generic cell rate algorithm (ITU-T I.371). Times are monotonic seconds.
    """

    def __init__(self, rate_s: float, burst: float) -> None:
        self._rate_s = rate_s
        self._burst_s = burst / rate_s
        self._paid_s = float("-inf")  # when all that was taken is paid for

    def take(self, amount: float, now_s: float) -> None:
        """Take so much, whether it is there or not."""
        self._paid_s = max(now_s, self._paid_s) + amount / self._rate_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until nothing is owed; 0: there is something left."""
        # To the microsecond: sums of fractions are a little above or below the exact sum.
        return max(0.0, round(self._paid_s - now_s - self._burst_s, 6))

    def owed_s(self, now_s: float) -> float:
        """Seconds until all that was taken is paid for, and everything is there again."""
        return max(0.0, self._paid_s - now_s)

    def free(self, now_s: float) -> float:
        """Return how much may be taken now without owing anything."""
        return min(self._burst_s, self._burst_s - (self._paid_s - now_s)) * self._rate_s


class Shared(Protocol):
    """A budget of bytes that several clients share."""

    def take(self, size: int, now_s: float) -> float:
        """Take so much, whether it is there or not; the seconds until that is paid for."""
        ...


class Pace:
    """One client's budget of messages and bytes. A frame without content is a message, and so are pings and pongs.

    A client that shares a budget with others waits for the bytes that it sent itself, behind those that were sent
    before: in turn. It does not while it sends no more than one who talks.
    """

    def __init__(self, messages_s: float, bytes_s: float) -> None:
        self._messages_s = messages_s
        self._messages = Bucket(messages_s, messages_s * BURST_S)
        self._bytes = Bucket(bytes_s, bytes_s * BURST_S)
        self._slowed_s: float | None = None  # since when it has sent more than it may
        self._talk = Bucket(TALK_BYTES_S, TALK_BYTES_S / 4)
        self._shared: Sequence[Shared] = ()
        self._nobodys = 0  # bytes that came before anybody shared
        self._turn_s = float("-inf")  # when it is its turn among those it shares with

    def share(self, budgets: Sequence[Shared], now_s: float) -> None:
        """Count for these, too, what is taken in from now on, and what came before anybody knew whose it is."""
        if list(budgets) != list(self._shared):
            self._shared = budgets
            self._take_shared(0, now_s)

    def spend(self, messages: int, size: int, now_s: float) -> None:
        """Count so many messages of so many bytes in all that were taken in."""
        self._messages.take(messages, now_s)
        self._bytes.take(size, now_s)
        self._talk.take(size, now_s)
        self._take_shared(size, now_s)
        free = self._messages.free(now_s)
        if free >= self._messages_s:  # it has rested for a second
            self._slowed_s = None
        elif free < 0 and self._slowed_s is None:
            self._slowed_s = now_s

    def _take_shared(self, size: int, now_s: float) -> None:
        self._nobodys += size
        if self._shared:
            wait_s = max(one.take(self._nobodys, now_s) for one in self._shared)
            self._turn_s = now_s + wait_s if self._talk.wait_s(now_s) > 0 else float("-inf")
            self._nobodys = 0

    def wait_s(self, now_s: float) -> float:
        """Return how long nothing more is to be taken in; 0: go on."""
        return max(self._messages.wait_s(now_s), self._bytes.wait_s(now_s), self._turn_s - now_s, 0.0)

    def ahead_s(self, now_s: float) -> float:
        """Seconds that the client would have to be silent to have sent no more messages than it may, at their rate (up
        to BURST_S, and beyond that it waits), and no more bytes than one who talks."""
        return max(self._messages.owed_s(now_s), self._talk.wait_s(now_s))

    def goes_on(self, now_s: float) -> bool:
        """Whether the client has sent more messages than it may for PATIENCE_S: more bytes alone are only slow."""
        return self._slowed_s is not None and now_s - self._slowed_s > PATIENCE_S
