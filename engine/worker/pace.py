"""The amount of sound made at a time: one frame for a first sound, then a ramp, cut short where a listener runs dry."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.deployment.config import ChunkSpec
from engine.worker.listener import Listener


class Pace(Protocol):
    """The amount to gather before the listener must be served: the chunk policy, fed by playout."""

    def size(self, count: int) -> int:
        """Return how many codec frames the ``count``-th chunk (from 0) of this answer should hold."""
        ...

    def hurry(self) -> bool:
        """Whether the listener would run dry if one more frame were waited for."""
        ...


class OneFrame:
    """The chunk policy of a first sound."""

    def size(self, count: int) -> int:
        return 1

    def hurry(self) -> bool:
        return False


@dataclass(slots=True)
class ListenerPace:
    """The chunk policy of one answer: a ramp, cut short when its listener would run dry.

    ``round_s`` tells how long one step of every stage takes.
    """

    chunks: ChunkSpec
    listener: Listener
    frame_s: float
    round_s: Callable[[], float]
    clock: Callable[[], float] = time.monotonic

    def size(self, count: int) -> int:
        """Return the chunk's size: big where a lost replica's frames are made again; the ramp begins with what is
        new."""
        again = round(self.listener.again_s / self.frame_s)
        whole, rest = divmod(again, self.chunks.steady)
        if count < whole:
            return self.chunks.steady
        if count == whole and rest:
            return rest
        return self.chunks.size(count - whole - bool(rest))

    def hurry(self) -> bool:
        """Whether waiting for one more frame, and decoding it, would take longer than the sound lasts."""
        if not self.chunks.hurry or self.listener.started_s is None or self.listener.made_s < self.listener.again_s:
            return False
        return self.listener.slack_s(self.clock()) < 2 * self.round_s() + self.frame_s / 4
