"""WAV files."""

from __future__ import annotations

import io
import wave

from engine.core import MIC_RATE_HZ, Pcm


def wav(pcm: Pcm) -> bytes:
    """Return a WAV file of mono 16-bit audio.

    Args:
        pcm: int16 [samples] at MIC_RATE_HZ.

    Returns:
        The bytes of the file.
    """
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(MIC_RATE_HZ)
        writer.writeframes(pcm.astype("<i2", copy=False).tobytes())
    return file.getvalue()
