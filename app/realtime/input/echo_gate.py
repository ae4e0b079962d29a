"""Chooses the signal in which turns are found, after two kinds of echo cancellation.

A canceller with a suppressor removes nearly all echo, and often a user who speaks at the same time. A linear filter
leaves that user as they are, and some echo. A frame is suppressed if it holds little but echo: if the suppressor takes
much of it, and the filter took about as much of what the microphone heard as it takes of an echo.
"""

from __future__ import annotations

import numpy as np

from app.realtime.input.frames import FRAME
from engine.core import Pcm

_SUPPRESSED = 10 ** (-14 / 10)  # power that the suppressor leaves of a frame with a user, at least
_FILTERED = 10 ** (-8 / 10)  # power that a filter leaves of a frame with nothing but echo, at most
_ABOVE = 10 ** (12 / 10)  # the same, as a multiple of this filter's residual echo so far
_FALL = 0.1  # weight of a frame in the residual echo, if its own is lower
_RISE = 0.01  # the same if it left more: a user may begin softly
_SMOOTH = 0.7  # weight of the past in a frame's power


class EchoGate:
    """The gate of one microphone."""

    def __init__(self) -> None:
        self._heard = 1.0
        self._linear = 1.0
        self._suppressed = 1.0
        self._left = 1.0  # part of an echo's power that the filter has left: all, until it knows the room

    def choose(self, heard: Pcm, linear: Pcm, suppressed: Pcm, aligned: bool) -> Pcm:
        """Return int16 [n]: frames of ``linear`` with a user, and frames of ``suppressed`` with nothing but echo.

        Args:
            heard: The microphone's signal, int16 [n].
            linear: The same after the filter.
            suppressed: The same after the canceller with a suppressor.
            aligned: Whether the filter knows the present delay of the echo. Otherwise it leaves echo.
        """
        chosen = linear.copy()
        for at in range(0, len(linear), FRAME):
            frame = slice(at, at + FRAME)
            self._heard = _SMOOTH * self._heard + (1 - _SMOOTH) * _power(heard[frame])
            self._linear = _SMOOTH * self._linear + (1 - _SMOOTH) * _power(linear[frame])
            self._suppressed = _SMOOTH * self._suppressed + (1 - _SMOOTH) * _power(suppressed[frame])
            if self._suppressed < _SUPPRESSED * self._linear and not (aligned and self._is_user()):
                change = min(1.0, self._linear / self._heard) - self._left
                self._left += change * (_FALL if change < 0 else _RISE)
                chosen[frame] = suppressed[frame]
        return chosen

    def _is_user(self) -> bool:
        """Return whether the filter left more than an echo."""
        return self._linear > max(_FILTERED, _ABOVE * self._left) * self._heard


def _power(pcm: Pcm) -> float:
    return float(np.square(pcm, dtype=np.float64).mean())
