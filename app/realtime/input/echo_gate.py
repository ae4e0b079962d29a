"""Chooses the signal in which turns are found, after two kinds of echo cancellation.

A canceller with a suppressor removes nearly all echo, and much of a user who speaks at the same time. A linear filter
leaves that user as they are, and some echo. The ratio of both tells which of the two is there: a suppressor takes more
than 14 dB from a frame only if it holds little but echo.
"""

from __future__ import annotations

import numpy as np

from app.realtime.input.frames import FRAME
from engine.core import Pcm

_RATIO = 10 ** (-14 / 10)  # power that the suppressor leaves of a frame with a user, at least
_SMOOTH = 0.7  # weight of the past in a frame's power


class EchoGate:
    """The gate of one microphone."""

    def __init__(self) -> None:
        self._linear = 1.0
        self._suppressed = 1.0

    def choose(self, linear: Pcm, suppressed: Pcm) -> Pcm:
        """Return int16 [n]: frames of ``linear`` with a user, and frames of ``suppressed`` with nothing but echo."""
        chosen = linear.copy()
        for at in range(0, len(linear), FRAME):
            frame = slice(at, at + FRAME)
            self._linear = _SMOOTH * self._linear + (1 - _SMOOTH) * _power(linear[frame])
            self._suppressed = _SMOOTH * self._suppressed + (1 - _SMOOTH) * _power(suppressed[frame])
            if self._suppressed < _RATIO * self._linear:
                chosen[frame] = suppressed[frame]
        return chosen


def _power(pcm: Pcm) -> float:
    return float(np.square(pcm, dtype=np.float64).mean())
