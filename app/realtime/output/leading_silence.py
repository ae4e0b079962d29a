"""The silence that leads an answer: it is not worth waiting for. Knows no clock."""

from __future__ import annotations

import numpy as np

from engine import SPEAKER_RATE_HZ
from engine.core import Wave

BLOCK = SPEAKER_RATE_HZ // 100  # 10 ms
SILENT_RMS = 10 ** (-50 / 20)
"""The level of silence, of full scale: softer sound is not heard before a voice; half of what counts as sound (−45
dBFS)."""


MOST = 6
"""Blocks that are left out: a voice takes its breath for 20 to 60 ms; a soft consonant may come after that."""


class LeadingSilence:
    """A filter that leaves out the silence which an answer begins with, MOST blocks of it."""

    def __init__(self) -> None:
        self.skipped_samples = 0
        self._left = MOST

    def feed(self, samples: Wave) -> Wave:
        """Return what is to be played of the next float32 [samples]."""
        if not self._left:
            return samples
        blocks = samples[: len(samples) // BLOCK * BLOCK].reshape(-1, BLOCK)[: self._left]
        audible = np.flatnonzero(np.square(blocks).mean(1) >= SILENT_RMS**2)
        silent = int(audible[0]) if len(audible) else len(blocks)
        whole = silent * BLOCK == len(samples)
        self._left = self._left - silent if whole else 0
        self.skipped_samples += silent * BLOCK
        return samples[silent * BLOCK :]
