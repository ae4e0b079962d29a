"""The last samples of a microphone, for a turn that turns out to have begun a moment ago."""

from __future__ import annotations

from collections import deque

import numpy as np

from engine.core import Pcm


class RecentAudio:
    """The recent audio of one session. Positions are samples from its first one on."""

    def __init__(self) -> None:
        self.position = 0
        """Samples pushed so far."""
        self._blocks: deque[Pcm] = deque()
        self._held = 0

    def push(self, pcm: Pcm, keep_samples: int) -> None:
        """Take int16 [n]; forget what lies more than ``keep_samples`` back."""
        self._blocks.append(pcm)
        self._held += len(pcm)
        self.position += len(pcm)
        while self._blocks and self._held - len(self._blocks[0]) >= keep_samples:
            self._held -= len(self._blocks.popleft())

    def since(self, position: int) -> Pcm:
        """int16: the samples from ``position`` on, as far as they are held."""
        held = np.concatenate([*self._blocks, np.empty(0, np.int16)])
        return held[max(0, position - (self.position - self._held)) :]

    def clear(self) -> None:
        """Discard all samples. ``position`` is not reset."""
        self._blocks.clear()
        self._held = 0
