"""Estimates how late this process's timers are, and how much farther ahead a call's audio should be sent.

If other programs use the processors, timers fire late: often by milliseconds, sometimes by a tenth of a second. Small
delays predict large ones, so a call that was a little late several times soon gets much more lead. On an idle machine
timers are usually late by less than ``USUAL_S``, and the lead stays as short as a barge-in requires.

Sans-I/O: the clock is an argument. All calls of a server share one estimator.
"""

from __future__ import annotations

from typing import NamedTuple

USUAL_S = 0.003
"""Usual lateness in seconds on an idle machine, from other work of the event loop."""

SOME = 3
"""Delays that count as a pattern. One or two are chance, for example when a program starts."""

TIMES = 6.0
"""The large delays of a minute are mostly less than this multiple of the third largest delay before them."""

MOST_S = 0.240
"""Maximum additional lead in seconds.

A barge-in can't discard this audio, so a client that does not mute itself stops that much later. In 45 minutes with
eight busy programs per core, 26 of 1,021 delays that exceeded a fixed lead still exceeded this one; reacting to a
single delay would leave 21.
"""

CALM_S = 60.0
"""Seconds in which a delay is gradually forgotten."""


class Delay(NamedTuple):
    """How much later than usual a sender was, and when."""

    late_s: float
    at_s: float

    def remembered_s(self, now_s: float) -> float:
        return self.late_s * max(0.0, 1 - (now_s - self.at_s) / CALM_S)


class TimerLatenessEstimator:
    """The estimator of one server. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._delays: list[Delay] = []  # the largest, oldest first

    def came(self, late_s: float, now_s: float) -> None:
        """Record that a sender came ``late_s`` seconds late."""
        delay = Delay(late_s - USUAL_S, now_s)
        if delay.late_s <= 0:
            return
        if self._delays and now_s - late_s < self._delays[-1].at_s:  # another call met the same delay
            delay = max(delay, self._delays.pop())
        self._delays.append(delay)
        if len(self._delays) > SOME:
            self._delays.remove(min(self._delays, key=lambda one: one.remembered_s(now_s)))

    def ahead_s(self, now_s: float) -> float:
        """Return how many additional seconds of audio should be ahead of a listener."""
        if len(self._delays) < SOME:
            return 0.0
        return min(MOST_S, TIMES * min(one.remembered_s(now_s) for one in self._delays))
