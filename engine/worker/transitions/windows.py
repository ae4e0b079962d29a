"""Cuts frames into windows with some of the frames before them, for decoders without state. Pure: no I/O, no clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALL = sys.maxsize
"""A bound that is never reached: all earlier frames are context."""


@dataclass(frozen=True, slots=True)
class PayloadWindow:
    """Frames [frames, ...] to decode at once. The first ``context`` of them have been decoded before."""

    frames: NDArray[Any]
    context: int
    finished: bool = False


@dataclass(slots=True)
class Windows:
    """The windows of one request.

    Window ``n`` (from 0) has ``size(n)`` new frames. It begins with at most ``left`` of the frames before, and ends
    with ``ahead`` frames that the decoder sees and the next window decodes. The last window has the remaining frames.
    If there are none, it is empty and only marks the end.
    """

    frames: NDArray[Any]
    """The frames that are still needed. Initially empty, [0, ...], with the shape of a frame."""
    size: Callable[[int], int]
    left: int
    ahead: int = 0
    _context: int = 0
    _count: int = 0

    def add(self, frames: NDArray[Any]) -> list[PayloadWindow]:
        """Add frames [n, ...], and return the windows that are now complete."""
        self.frames = np.concatenate([self.frames, frames])
        due: list[PayloadWindow] = []
        while len(self.frames) >= (voiced := self._context + self.size(self._count)) + self.ahead:
            due.append(PayloadWindow(self.frames[: voiced + self.ahead], self._context))
            self._context = min(self.left, voiced)
            self.frames = self.frames[voiced - self._context :]
            self._count += 1
        return due

    def end(self) -> PayloadWindow:
        """Return the last window with the remaining frames."""
        if len(self.frames) == self._context:
            return PayloadWindow(self.frames[:0], 0, finished=True)
        return PayloadWindow(self.frames, self._context, finished=True)
