"""Removal of the silence at the start of an answer, so that nobody waits for it. Never reads the clock."""

from __future__ import annotations

import numpy as np

from engine import SPEAKER_RATE_HZ
from engine.core import Wave

BLOCK = SPEAKER_RATE_HZ // 100  # 10 ms
SILENT_RMS = 10 ** (-50 / 20)
"""RMS of silence relative to full scale. Softer sound before speech is inaudible; this is half the level that counts as
sound (−45 dBFS).
"""


MOST = 6
"""Maximum number of removed blocks: a voice breathes in for 20 to 60 ms, and a soft consonant may follow."""


class LeadingSilence:
    """Removes the silence at the start of an answer, at most MOST blocks."""

    def __init__(self) -> None:
        self.skipped_samples = 0
        self._left = MOST

    def feed(self, samples: Wave) -> Wave:
        """Return the part of the next float32 [samples] to play."""
        if not self._left:
            return samples
        blocks = samples[: len(samples) // BLOCK * BLOCK].reshape(-1, BLOCK)[: self._left]
        audible = np.flatnonzero(np.square(blocks).mean(1) >= SILENT_RMS**2)
        silent = int(audible[0]) if len(audible) else len(blocks)
        whole = silent * BLOCK == len(samples)
        self._left = self._left - silent if whole else 0
        self.skipped_samples += silent * BLOCK
        return samples[silent * BLOCK :]
