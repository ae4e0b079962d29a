"""Samples as a WAV file, for what decodes files."""

from __future__ import annotations

import io
import wave

from engine import SPEAKER_RATE_HZ


def wav_of(pcm: bytes) -> bytes:
    """Return 16-bit mono samples at SPEAKER_RATE_HZ as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SPEAKER_RATE_HZ)
        out.writeframes(pcm)
    return file.getvalue()
