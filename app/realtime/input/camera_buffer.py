"""The newest pictures of a client's camera while its user speaks, at a budgeted rate. Knows no clock.

A turn takes some, so that what moves can be told from what does not; the newest is the last.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from app.realtime.protocol import CameraFrame, Picture

PICTURES = 3
"""Pictures of one turn: two tell that something moves, a third one where to."""

MAX_FRAME_BYTES = 3 * 4_000_000
"""Bytes of one picture's pixels: more than any video has, and a turn's pictures leave most of the conversation's
room."""

FRESH_S = 5.0
"""A picture that is older says nothing of this turn."""


class CameraBuffer:
    """``every_s``: pictures that come sooner after one another are left out."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._frames: deque[tuple[float, Picture]] = deque(maxlen=PICTURES)
        self._next_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether a picture may be taken now, which costs its decoding."""
        return now_s >= self._next_s

    def add_frame(self, frame: CameraFrame, now_s: float) -> None:
        """Take a picture."""
        self._next_s = now_s + 0.9 * self._every_s  # they come as often as they may, a little sooner or later
        if self._frames:
            before_s, newest = self._frames.pop()
            self._frames.append((before_s, replace(newest, shown=False)))
        self._frames.append((now_s, Picture(frame.pixels, frame.url)))

    def pictures(self, now_s: float) -> tuple[Picture, ...]:
        """Return those that a turn takes, oldest first. Events show the newest; all of them would fill a call's
        channel."""
        return tuple(picture for added_s, picture in self._frames if now_s - added_s <= FRESH_S)

    def clear(self) -> None:
        """A turn has them: again they would say nothing new."""
        self._frames.clear()
