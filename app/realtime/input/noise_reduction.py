"""The microphone's sound with less noise, for the ears: WebRTC's noise suppression and, for one far away, its gain.

Turns are found in the sound as it is: suppression does not keep babble from being taken for the user (``python -m
benchmarks.noise``), and a margin above the voices that never pause does (``babble_floor.py``).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, Protocol

import numpy as np

from app.realtime.input.frames import PcmFrames
from engine.core import Pcm

Field = Literal["near_field", "far_field"]

SUPPRESSION = 2
"""WebRTC's level of suppression at full strength, of 4: 12 dB."""

GAIN_DBFS = 6
"""The level, below full scale, up to which WebRTC's gain lifts a voice that is far away."""

MARGIN_DB = 8.0
"""A turn begins with a voice so far above those around that never pause, at full strength."""


class Cleaner(Protocol):
    """One microphone's sound, piece by piece."""

    def clean(self, pcm: Pcm) -> Pcm:
        """Return int16 [n] for int16 [n] at MIC_RATE_HZ."""
        ...


class Untouched:
    """The sound as it is."""

    def clean(self, pcm: Pcm) -> Pcm:
        return pcm


class WebRtcCleaner:
    """WebRTC's suppression, 10 ms at a time: some 40 µs each.

    As many samples come out as go in, 91 samples (5.7 ms) later by the algorithm, and by less than a frame where pieces
    are no multiples of one (``PcmFrames``).
    """

    def __init__(self, field: Field, strength: float) -> None:
        from webrtc_noise_gain import AudioProcessor  # optional: only where somebody asks for it

        gain = GAIN_DBFS if field == "far_field" else 0
        self._processor: Any = AudioProcessor(gain, max(1, round(SUPPRESSION * strength)))
        self._frames = PcmFrames(self._filtered, channels=1)

    def clean(self, pcm: Pcm) -> Pcm:
        return self._frames.push(pcm[:, None])

    def _filtered(self, frame: Pcm) -> Pcm:
        cleaned = self._processor.Process10ms(frame.astype("<i2", copy=False).tobytes()).audio
        return np.frombuffer(cleaned, "<i2").astype(np.int16, copy=False)


@cache
def available() -> bool:
    """Whether the wheel is installed: the extra ``noise``."""
    return find_spec("webrtc_noise_gain") is not None


def cleaner(field: Field | None, strength: float = 1.0) -> Cleaner:
    """Return what cleans a microphone's sound; None, no strength, or no wheel: nothing does."""
    if field is None or strength == 0 or not available():
        return Untouched()
    return WebRtcCleaner(field, strength)
