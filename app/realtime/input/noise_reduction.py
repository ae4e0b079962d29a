"""Noise reduction for speech recognition: WebRTC's suppression, and its gain for distant voices.

Turns are found in the signal without it: no denoiser of ``benchmarks.noise`` keeps other voices from beginning
turns. A margin above the voices that never pause does (``babble_floor.py``).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, Protocol

import numpy as np

from app.realtime.input.echo_canceller import available
from app.realtime.input.frames import PcmFrames
from app.telemetry import log
from engine.core import MIC_RATE_HZ, Pcm

Field = Literal["near_field", "far_field"]

LEVEL = 0
"""WebRTC's weakest suppression, 6 dB. It lowers Moonshine's word errors in noise, and raises none in clean speech.

12 dB and the networks of ``benchmarks.noise`` raise both.
"""

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
    """WebRTC's suppression, 10 ms at a time: some 20 µs each.

    As many samples come out as go in, 91 samples (5.7 ms) later by the algorithm, and by less than a frame where pieces
    are no multiples of one (``PcmFrames``).
    """

    def __init__(self, field: Field) -> None:
        from pywebrtc_audio import AudioProcessor  # only where a session asks for it

        self._processor: Any = AudioProcessor(
            sample_rate=MIC_RATE_HZ, noise_suppression=True, ns_level=LEVEL, auto_gain_control=field == "far_field"
        )
        self._frames = PcmFrames(self._filtered, channels=1)

    def clean(self, pcm: Pcm) -> Pcm:
        return self._frames.push(pcm[:, None])

    def _filtered(self, frame: Pcm) -> Pcm:
        return self._processor.process(np.ascontiguousarray(frame[:, 0]))


def cleaner(field: Field | None, strength: float = 1.0) -> Cleaner:
    """Return the noise reduction of a session; without a field, a strength or the library the sound stays as it is.

    All strengths above 0 suppress alike.
    """
    if field is None or strength == 0:
        return Untouched()
    if not available():
        _report_missing()
        return Untouched()
    return WebRtcCleaner(field)


@cache
def _report_missing() -> None:
    """Log once that the library is missing."""
    log("noise_reduction.unavailable", hint="run: pip install pywebrtc-audio")
