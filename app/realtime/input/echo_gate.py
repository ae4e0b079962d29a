"""Chooses the signal in which turns are found, after two kinds of echo cancellation.

A canceller with a suppressor removes nearly all echo, and often a user who speaks at the same time. A linear filter
leaves that user as they are, and some echo. A frame is suppressed if it holds little but echo: if the suppressor takes
much of it, and the rest after the filter is no louder than this filter's residual echo at these frequencies so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.realtime.input.frames import FRAME
from engine.core import Pcm

_EDGES = np.array([1, 3, 6, 10, 15, 22, 32, 48])  # first bins of the bands; a bin is 100 Hz wide
_SUPPRESSED = 10 ** (-14 / 10)  # power that the suppressor leaves of a frame with a user, at least
_FILTERED = 10 ** (-8 / 10)  # power that a filter leaves of a frame with nothing but echo, at most
_ABOVE = 10 ** (12 / 10)  # the same, as a multiple of this filter's residual echo so far
_FALL = 0.1  # weight of a frame in a band's residual echo, if its own is lower
_RISE = 0.01  # the same if it left more: a user may begin softly
_FAINT = 0.01  # part of a frame's power below which a band holds little but noise
_SMOOTH = 0.7  # weight of the past in a frame's power

Bands = NDArray[np.float64]


class EchoGate:
    """The gate of one microphone."""

    def __init__(self) -> None:
        self._heard: Bands = np.ones(len(_EDGES))
        self._linear: Bands = np.ones(len(_EDGES))
        self._suppressed: Bands = np.ones(len(_EDGES))
        # The residual echo of each band, as a part of the echo's power: all, until the filter knows the room.
        self._left: Bands = np.ones(len(_EDGES))

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
            self._heard = _followed(self._heard, heard[frame])
            self._linear = _followed(self._linear, linear[frame])
            self._suppressed = _followed(self._suppressed, suppressed[frame])
            if self._suppressed.sum() < _SUPPRESSED * self._linear.sum() and not (aligned and self._is_user()):
                self._learn()
                chosen[frame] = suppressed[frame]
        return chosen

    def _learn(self) -> None:
        """Follow the residual echo in the bands that hold more than noise."""
        sounding = self._heard > _FAINT * self._heard.sum()
        change = np.minimum(1.0, self._linear[sounding] / np.maximum(self._heard[sounding], 1.0)) - self._left[sounding]
        self._left[sounding] += change * np.where(change < 0, _FALL, _RISE)

    def _is_user(self) -> bool:
        """Return whether the filter left more than an echo."""
        echo = max(_FILTERED * self._heard.sum(), _ABOVE * float(self._left @ self._heard))
        return float(self._linear.sum()) > echo


def _followed(powers: Bands, pcm: Pcm) -> Bands:
    """Return the smoothed power of each band after a further frame."""
    spectrum = np.fft.rfft(pcm * np.hanning(len(pcm)), FRAME)
    return _SMOOTH * powers + (1 - _SMOOTH) * np.add.reduceat(np.square(np.abs(spectrum)), _EDGES) / FRAME
