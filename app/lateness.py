"""How late this process came lately to send sound, and how much farther ahead a call's sound leaves for that.

Where other programs have the processors, timers fire late: by milliseconds often, by a tenth of a second now and then.
The small delays foretell the large ones, so a call that found itself a little late has much more ahead soon after. On a
calm machine timers are late by less than ``USUAL_S``, and nothing more leaves than a barge-in may cost.

Sans-I/O: the clock is an argument. Knows no session; all of a server's calls tell it, and ask it.
"""

from __future__ import annotations

USUAL_S = 0.003
"""Seconds by which a timer is late on a calm machine: what the loop was at."""

TIMES = 6.0
"""The delays before a large one are mostly a sixth of it, or more."""

MOST_S = 0.240
"""Seconds of sound beyond a call's own lead, at most. A barge-in can't recall them, so that it takes as much longer in
a client that is not silent by itself; of the delays on a machine with eight programs for each core, two in 115 that
ran a fixed lead dry were longer."""

CALM_S = 120.0
"""Seconds in which a delay is forgotten, little by little."""


class Lateness:
    """One server's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._late_s = 0.0
        self._at_s = 0.0

    def came(self, late_s: float, now_s: float) -> None:
        """A sender that wanted to come so much earlier has come now."""
        if late_s - USUAL_S > self._remembered_s(now_s):
            self._late_s, self._at_s = late_s - USUAL_S, now_s

    def ahead_s(self, now_s: float) -> float:
        """Return how many seconds of sound more than usual should be ahead of a listener."""
        return min(MOST_S, TIMES * self._remembered_s(now_s))

    def _remembered_s(self, now_s: float) -> float:
        return self._late_s * max(0.0, 1 - (now_s - self._at_s) / CALM_S)
