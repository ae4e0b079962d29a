"""Signals with echoes, and an echo canceller that knows the echo, for the tests of echo cancellation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm

PIECE = MIC_RATE_HZ // 50


class SubtractingCanceller:
    """Subtracts the playback with a fixed gain and delay."""

    def __init__(self, gain: float = 0.5, delay: int = 320) -> None:
        self._gain = gain
        self._past = np.zeros(delay, np.int16)

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        played = np.concatenate([self._past, far])
        self._past = played[len(near) :]
        echo = np.round(self._gain * played[: len(near)])
        return np.clip(near - echo, -32768, 32767).astype(np.int16)


def voice(seconds: float, seed: int = 0, level: float = 3000.0) -> Pcm:
    """Return noise that swells and pauses like speech."""
    count = int(seconds * MIC_RATE_HZ)
    rng = np.random.default_rng(seed)
    times = np.arange(count) / MIC_RATE_HZ
    syllables = np.maximum(0.2, np.sin(2 * np.pi * 3 * times + seed)) * (np.sin(2 * np.pi * 0.4 * times + seed) > -0.7)
    coloured = np.convolve(rng.normal(0, 1, count + 2), (0.25, 0.5, 0.25), "valid")
    return np.clip(level * syllables * coloured / coloured.std(), -32768, 32767).astype(np.int16)


def band(pcm: Pcm, low_hz: float, high_hz: float) -> Pcm:
    """Return the part of a signal between two frequencies."""
    spectrum = np.fft.rfft(pcm)
    hz = np.fft.rfftfreq(len(pcm), 1 / MIC_RATE_HZ)
    spectrum[(hz < low_hz) | (hz > high_hz)] = 0
    return np.fft.irfft(spectrum, len(pcm)).astype(np.int16)


def late(pcm: Pcm, samples: int, gain: float = 0.5) -> Pcm:
    """Return the echo of a playback, of the same length."""
    return np.round(gain * np.concatenate([np.zeros(samples), pcm])[: len(pcm)]).astype(np.int16)


def power(pcm: NDArray[Any]) -> float:
    return float(np.square(pcm, dtype=np.float64).mean())
