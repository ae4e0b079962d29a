"""Sound as a file that every program reads."""

from __future__ import annotations

import io
import wave

from engine.core import MIC_RATE_HZ, Pcm


def wav(pcm: Pcm) -> bytes:
    """int16 [samples] at MIC_RATE_HZ as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(MIC_RATE_HZ)
        writer.writeframes(pcm.astype("<i2", copy=False).tobytes())
    return file.getvalue()
