"""The microphone's sound with less noise, for the ears: WebRTC's noise suppression and, for one far away, its gain.

Turns are found in the sound as it is: suppression does not keep babble from being taken for the user (``python -m
benchmarks.noise``), and a margin above the voices that never pause does (``babble_floor.py``).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, Protocol

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ // 100
"""Samples that are cleaned at once: 10 ms."""

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

    As many samples come out as go in, 91 samples (5.7 ms) later by the algorithm. Pieces whose lengths differ by whole
    frames wait for nothing else; others for less than a frame, once: of 512 samples, for 128 of a frame's 160. WebRTC
    takes whole frames alone, so they can't wait for less while each piece gives as much as it brought.
    """

    def __init__(self, field: Field, strength: float) -> None:
        from webrtc_noise_gain import AudioProcessor  # optional: only where somebody asks for it

        gain = GAIN_DBFS if field == "far_field" else 0
        self._processor: Any = AudioProcessor(gain, max(1, round(SUPPRESSION * strength)))
        self._pending = b""
        self._ready = b""
        self._begun = False

    def clean(self, pcm: Pcm) -> Pcm:
        sound = self._pending + np.ascontiguousarray(pcm, "<i2").tobytes()
        lead = 0
        if not self._begun:  # the first frame begins before the sound does, so that it ends with it
            lead = -len(sound) % (2 * FRAME)
            sound = bytes(lead) + sound
            self._begun = True
        whole = len(sound) - len(sound) % (2 * FRAME)
        frames = (sound[at : at + 2 * FRAME] for at in range(0, whole, 2 * FRAME))
        cleaned = b"".join(self._processor.Process10ms(frame).audio for frame in frames)
        self._pending = sound[whole:]
        self._ready = self._ready + cleaned[lead:]
        wanted = 2 * len(pcm)
        late = bytes(max(0, wanted - len(self._ready)))
        out = self._ready[: wanted - len(late)]
        self._ready = self._ready[wanted - len(late) :]
        return np.frombuffer(late + out, "<i2").astype(np.int16, copy=False)


@cache
def available() -> bool:
    """Whether the wheel is installed: the extra ``noise``."""
    return find_spec("webrtc_noise_gain") is not None


def cleaner(field: Field | None, strength: float = 1.0) -> Cleaner:
    """Return what cleans a microphone's sound; None, no strength, or no wheel: nothing does."""
    if field is None or strength == 0 or not available():
        return Untouched()
    return WebRtcCleaner(field, strength)
