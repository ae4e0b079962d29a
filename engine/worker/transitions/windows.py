"""Frames cut into windows, each with some of the frames before it: for decoders that keep no state of their own.

Knows no codec. Pure: no stage, no clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALL = sys.maxsize
"""A bound that no number of frames reaches: all of the past is context."""


@dataclass(frozen=True, slots=True)
class PayloadWindow:
    """Frames [frames, ...] to be decoded at once. The first ``context`` of them have sounded already."""

    frames: NDArray[Any]
    context: int
    finished: bool = False


@dataclass(slots=True)
class Windows:
    """The windows of one request.

    The ``n``-th one (from 0) voices ``size(n)`` frames. It begins with at most ``left`` of the frames before, and ends
    with ``ahead`` frames that the decoder looks at and the next window voices. The last window has what remains: if
    that is nothing, it has no frames, and only says that the request is finished.
    """

    frames: NDArray[Any]
    """Frames that are still needed; no frames to begin with, [0, ...], which tell the shape of one."""
    size: Callable[[int], int]
    left: int
    ahead: int = 0
    _context: int = 0
    _count: int = 0

    def add(self, frames: NDArray[Any]) -> list[PayloadWindow]:
        """Take further frames [n, ...]; the windows that they fill."""
        self.frames = np.concatenate([self.frames, frames])
        due: list[PayloadWindow] = []
        while len(self.frames) >= (voiced := self._context + self.size(self._count)) + self.ahead:
            due.append(PayloadWindow(self.frames[: voiced + self.ahead], self._context))
            self._context = min(self.left, voiced)
            self.frames = self.frames[voiced - self._context :]
            self._count += 1
        return due

    def end(self) -> PayloadWindow:
        """Return the last window, however few frames it has."""
        if len(self.frames) == self._context:
            return PayloadWindow(self.frames[:0], 0, finished=True)
        return PayloadWindow(self.frames, self._context, finished=True)
