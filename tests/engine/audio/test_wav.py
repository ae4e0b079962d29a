"""A WAV file that the engine makes can be read again."""

from __future__ import annotations

import io
import wave

import numpy as np

from engine import MIC_RATE_HZ, wav


def test_a_wav_file_holds_the_samples_and_their_rate() -> None:
    pcm = np.array([0, 1, -1, 32_767, -32_768], np.int16)
    with wave.open(io.BytesIO(wav(pcm))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, MIC_RATE_HZ)
        assert file.readframes(10) == pcm.astype("<i2").tobytes()
