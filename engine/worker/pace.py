"""Sizes of audio chunks: one frame for the first audio, then growing, cut short if playback would underrun."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.deployment.config import ChunkSpec
from engine.worker.listener import Listener


class Pace(Protocol):
    """A policy for the number of codec frames in an answer's next chunk. It depends on the playback."""

    def size(self, count: int) -> int:
        """Return how many codec frames the ``count``-th chunk (from 0) of this answer should hold."""
        ...

    def hurry(self) -> bool:
        """Whether playback would underrun while waiting for one more frame."""
        ...


class OneFrame:
    """A policy with chunks of one frame."""

    def size(self, count: int) -> int:
        return 1

    def hurry(self) -> bool:
        return False


@dataclass(slots=True)
class ListenerPace:
    """The chunk policy of one answer: growing chunks, cut short if playback would underrun."""

    chunks: ChunkSpec
    listener: Listener
    frame_s: float
    """Length of a codec frame in seconds."""
    round_s: Callable[[], float]
    """Returns the duration of one step of every stage, in seconds."""
    clock: Callable[[], float] = time.monotonic

    def size(self, count: int) -> int:
        """Return the chunk's size. Frames that repeat a lost replica's come first, in full-size chunks."""
        again = round(self.listener.again_s / self.frame_s)
        whole, rest = divmod(again, self.chunks.steady)
        if count < whole:
            return self.chunks.steady
        if count == whole and rest:
            return rest
        return self.chunks.size(count - whole - bool(rest))

    def hurry(self) -> bool:
        """Whether waiting for one more frame and decoding it would take longer than the buffered audio lasts."""
        if not self.chunks.hurry or self.listener.started_s is None or self.listener.made_s < self.listener.again_s:
            return False
        return self.listener.slack_s(self.clock()) < 2 * self.round_s() + self.frame_s / 4
