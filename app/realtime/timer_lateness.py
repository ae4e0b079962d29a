"""How late this process came lately to send sound, and how much farther ahead a call's sound leaves for that.

Where other programs have the processors, timers fire late: by milliseconds often, by a tenth of a second now and then.
The small delays foretell the large ones, so a call that found itself a little late some times has much more ahead soon
after. On a calm machine timers are late by less than ``USUAL_S``, but for one now and then, and nothing more leaves
than a barge-in may cost.

Sans-I/O: the clock is an argument. Knows no session; all of a server's calls tell it, and ask it.
"""

from __future__ import annotations

from typing import NamedTuple

USUAL_S = 0.003
"""Seconds by which a timer is late on a calm machine: what the loop was at."""

SOME = 3
"""So many delays are a sign. One or two are chance, as where a program starts."""

TIMES = 6.0
"""The large delays of a minute are mostly less than so many times the third largest before them."""

MOST_S = 0.240
"""Seconds of sound beyond a call's own lead, at most. A barge-in can't recall them, so that it takes as much longer in
a client that is not silent by itself. In 45 minutes with eight programs for each core, of 1,021 delays that ran a fixed
lead dry 26 did so with these figures, and 21 would if one delay were sign enough."""

CALM_S = 60.0
"""Seconds in which a delay is forgotten, little by little."""


class Delay(NamedTuple):
    """By how much a sender came later than usual, and when."""

    late_s: float
    at_s: float

    def remembered_s(self, now_s: float) -> float:
        return self.late_s * max(0.0, 1 - (now_s - self.at_s) / CALM_S)


class TimerLatenessEstimator:
    """One server's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._delays: list[Delay] = []  # the largest, oldest first

    def came(self, late_s: float, now_s: float) -> None:
        """A sender that wanted to come so much earlier has come now."""
        delay = Delay(late_s - USUAL_S, now_s)
        if delay.late_s <= 0:
            return
        if self._delays and now_s - late_s < self._delays[-1].at_s:  # another call met the same delay
            delay = max(delay, self._delays.pop())
        self._delays.append(delay)
        if len(self._delays) > SOME:
            self._delays.remove(min(self._delays, key=lambda one: one.remembered_s(now_s)))

    def ahead_s(self, now_s: float) -> float:
        """Return how many seconds of sound more than usual should be ahead of a listener."""
        if len(self._delays) < SOME:
            return 0.0
        return min(MOST_S, TIMES * min(one.remembered_s(now_s) for one in self._delays))
