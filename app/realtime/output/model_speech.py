"""Finds in the output of a duplex model where the model speaks. Sans-I/O: time is counted in samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine import SPEAKER_RATE_HZ
from engine.core import Wave

LOUD_RMS = 0.006
"""Level of speech: -44 dBFS. Speech has -20 to -30 dBFS, a silent model less than -55 dBFS."""

BEGIN_S = 0.15
"""Seconds of loud audio that are speech even without a word, such as laughter. A click is shorter."""

END_S = 0.8
"""Seconds without a word and without loud audio that end speech: more than between two sentences."""


@dataclass(slots=True)
class ModelSpeech:
    """Whether the model speaks, by its audio and text."""

    speaking: bool = False
    loud_frames: int = 0
    """Loud frames since the last quiet one."""
    _loud_s: float = 0.0
    _quiet_s: float = 0.0

    def audio(self, wave: Wave) -> None:
        """Add the next frame: float32 [samples] at SPEAKER_RATE_HZ."""
        seconds = len(wave) / SPEAKER_RATE_HZ
        loud = len(wave) > 0 and float(np.sqrt(np.mean(np.square(wave)))) >= LOUD_RMS
        self.loud_frames = self.loud_frames + 1 if loud else 0
        self._loud_s = self._loud_s + seconds if loud else 0.0
        self._quiet_s = 0.0 if loud else self._quiet_s + seconds
        if self._loud_s >= BEGIN_S:
            self.speaking = True
        elif self._quiet_s >= END_S - 1e-9:
            self.speaking = False

    def word(self) -> None:
        """Add a word that came with the last frame."""
        self._quiet_s = 0.0
        self.speaking = True
