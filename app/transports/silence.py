"""Silence in place of the audio that a real-time source leaves out.

A telephone or browser that suppresses silence sends nothing while nobody speaks, and turn detection counts audio, not
time: without silence, a turn would never end. This is not for clients that may upload at any pace (``WS
/v1/realtime``). There, a pause only means that the audio has yet to arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET_S = 0.3
"""Seconds without audio after which silence is added. A network delay of 200 ms is not silence."""
QUIET_STEP_S = 0.1
"""Seconds of silence that are added at a time."""
LONGEST_QUIET_S = 10.0
"""Maximum seconds of silence in a row. No turn detection waits for a longer pause."""

SHORTEST_PAUSE_S = 0.020
"""Duration of a packet: a shorter pause between consecutive packets is none."""


class SilenceFiller:
    """Adds the silence of one source by calling ``add`` with its seconds. Starts with the first ``heard``."""

    def __init__(self, add: Callable[[float], None]) -> None:
        self.made_up_s = 0.0
        """Seconds of silence that were added."""
        self._add = add
        self._quiet_s = 0.0  # added since the last audio
        self._timer: asyncio.TimerHandle | None = None

    def heard(self) -> None:
        """Record that audio has arrived."""
        self._quiet_s = 0.0
        self._again_in(QUIET_S)

    def fill(self, seconds: float) -> None:
        """Add a pause that the source reports."""
        pause_s = min(seconds, LONGEST_QUIET_S - self._quiet_s)
        if pause_s >= SHORTEST_PAUSE_S:
            self._make_up(pause_s)

    def close(self) -> None:
        """Stop adding silence. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()

    def _again_in(self, seconds: float) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._nothing_came)

    def _nothing_came(self) -> None:
        if self._quiet_s < LONGEST_QUIET_S:
            self._make_up(QUIET_STEP_S)
            self._again_in(QUIET_STEP_S)

    def _make_up(self, seconds: float) -> None:
        self._quiet_s += seconds
        self.made_up_s += seconds
        self._add(seconds)
