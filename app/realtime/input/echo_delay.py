"""Follows the delay of the playback's echo: it jumps with the network, and drifts with the client's clock.

Sans-I/O: positions and delays are samples of the microphone.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from engine.core import MIC_RATE_HZ

TOLERANCE = 8
"""Samples by which a delay may differ from the expected one without a jump: filters learn such a difference."""

AGREEING = 8
"""Samples by which two searches may differ to confirm a jump."""

FASTEST = 500e-6
"""Largest drift that is followed. Clocks of cheap devices differ by up to 100 ppm."""

_HISTORY = 200  # found delays from which the drift is estimated: a minute or two of playback
_SPREAD = 2 * MIC_RATE_HZ  # distance of two found delays at which about half of their drift counts
_STEP = 0.1  # part of a difference by which the expected delay moves at once: a filter learns so little


class EchoDelay:
    """The delay of one microphone's echo."""

    def __init__(self) -> None:
        self._delay: float | None = None  # at the position _since
        self._since = 0
        self._drift = 0.0  # change of the delay per sample
        self._jumps = 0.0  # sum of all jumps
        self._history: deque[tuple[int, float]] = deque(maxlen=_HISTORY)  # positions, and delays without the jumps
        self._moved: float | None = None  # another delay, found once: it may be a mistake

    @property
    def is_certain(self) -> bool:
        """Whether the last delay that a search found was the expected one."""
        return self._delay is not None and self._moved is None

    def at(self, position: int) -> float:
        """Return the expected delay at a position; 0 before the first one is known."""
        return 0.0 if self._delay is None else self._delay + self._drift * (position - self._since)

    def add(self, delay: float, position: int) -> bool:
        """Take the delay that a search found at a position. Return whether it is a confirmed jump."""
        expected = self.at(position)
        if self._delay is not None and abs(delay - expected) <= TOLERANCE:
            self._moved = None
            self._follow(delay, position)
            return False
        confirmed = self._moved is not None and abs(delay - self._moved) <= AGREEING
        self._moved = None if confirmed else delay
        if confirmed:
            self._jumps += delay - expected
            self._delay = delay
            self._since = position
        return confirmed

    def _follow(self, delay: float, position: int) -> None:
        """Move the expected delay a little, and estimate the drift anew."""
        expected = self.at(position)
        self._delay = expected + _STEP * (delay - expected)
        self._since = position
        self._history.append((position, delay - self._jumps))
        positions, delays = np.array(self._history).T
        offsets = positions - positions.mean()
        drift = float(offsets @ delays / (offsets @ offsets + _SPREAD**2))
        self._drift = min(max(drift, -FASTEST), FASTEST)
