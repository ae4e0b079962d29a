"""Samples pairs of noisy speech and the same speech with less noise, to train the denoiser.

Uses the files written by `crowd`. Each draw is a piece of speech by one speaker (made up to a sixth taller or smaller),
with a random microphone, room, level and noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm
from engine.training.nano.conditions import level, speech_level

Wave = NDArray[np.float32]
SIZE = 60_000  # of the Fourier transforms: longer than a mixture, against wraparound of reverberation
LENGTH = MIC_RATE_HZ * 7 // 2
DOWN = 0.125  # factor of the noise in the target
HISS = 4.0  # noise that speech recognition itself adds, int16
_fft = cast(Any, scipy.fft)  # single precision, unlike numpy's; its type stubs lack arrays
rfft, irfft = _fft.rfft, _fft.irfft
_HZ = np.fft.rfftfreq(SIZE, 1 / MIC_RATE_HZ)
_COARSE_HZ = np.linspace(0, MIC_RATE_HZ / 2, 257)


class Mixtures:
    """An endless source of pairs, the same for the same seed."""

    def __init__(self, home: Path, voices: list[str], seed: int) -> None:
        self._voices = [np.load(home / f"{name}.npz")["pcm"] for name in voices]
        self._rng = np.random.default_rng(seed)

    def draw(self, count: int) -> tuple[Wave, Wave]:
        """Return (mixtures, the same with less noise), each float32 [count, LENGTH] in int16 units."""
        pairs = [self._pair() for _ in range(count)]
        return np.stack([mixed for mixed, _ in pairs]), np.stack([less for _, less in pairs])

    def _pair(self) -> tuple[Wave, Wave]:
        rng = self._rng
        voice = self._over_a_microphone(self._speech())
        noise = self._noise() if rng.random() < 0.92 else np.zeros(LENGTH, np.float32)
        snr_db, loud = rng.uniform(-2, 30), 10 ** (rng.uniform(1.7, 3.7))
        voice *= loud / (speech_level(voice) + 1e-9)
        noise *= loud * 10 ** (-snr_db / 20) / level(noise)
        noise += rng.standard_normal(LENGTH, np.float32) * HISS
        return voice + noise, (voice + DOWN * noise).astype(np.float32)

    def _speech(self) -> Wave:
        """Return LENGTH samples of one speaker, usually with a pause before and after."""
        rng = self._rng
        pcm: Pcm = self._voices[rng.integers(len(self._voices))]
        pause, rest = int(rng.uniform(0, 0.7) * MIC_RATE_HZ), int(max(0, rng.uniform(-0.5, 0.5)) * MIC_RATE_HZ)
        count, taller = LENGTH - pause - rest, rng.uniform(0.85, 1.18)
        start = rng.integers(len(pcm) - int(count * taller) - 2)
        piece = pcm[start : start + int(count * taller) + 2].astype(np.float32)
        out = np.zeros(LENGTH, np.float32)
        out[pause : pause + count] = np.interp(np.arange(count) * taller, np.arange(len(piece)), piece)
        return out

    def _over_a_microphone(self, wave: Wave) -> Wave:
        """Apply a frequency response and, for a third of the voices, a room."""
        rng = self._rng
        response = _spectrum(rng, rng.uniform(-3, 3), 4).astype(np.complex64)
        if rng.random() < 0.35:
            response *= rfft(_room(rng), SIZE)
        return irfft(rfft(wave, SIZE) * response)[:LENGTH]

    def _noise(self) -> Wave:
        rng, kind = self._rng, self._rng.random()
        if kind < 0.1:  # people talking in the background
            return sum((self._over_a_microphone(self._speech()) for _ in range(6)), np.zeros(LENGTH, np.float32))
        noise = irfft(rfft(rng.standard_normal(SIZE, np.float32)) * _spectrum(rng, rng.uniform(-7, 1), 5))[:LENGTH]
        if kind < 0.25:  # noise that swells and falls
            slow = np.interp(np.arange(LENGTH), np.linspace(0, LENGTH, 12), rng.uniform(-8, 8, 12))
            noise *= (10 ** (slow / 20)).astype(np.float32)
        elif kind < 0.4:  # a rotating machine
            t, base = np.arange(LENGTH) / MIC_RATE_HZ, rng.uniform(45, 250)
            hum = sum(
                rng.uniform(0, 1) * np.sin(2 * np.pi * base * n * t + rng.uniform(0, 6)) / n for n in range(1, 12)
            )
            noise += np.asarray(hum, np.float32) * (level(noise) * rng.uniform(0, 3))
        return noise


def _spectrum(rng: np.random.Generator, db_an_octave: float, spread_db: float) -> Wave:
    """Return a smooth amplitude response: a slope above 100 Hz, with random variation."""
    octaves = np.log2(np.maximum(_COARSE_HZ, 100) / 1000)
    bends = np.interp(octaves, np.linspace(-4, 3.1, 9), rng.normal(0, spread_db, 9))
    return np.interp(_HZ, _COARSE_HZ, 10 ** ((db_an_octave * octaves + bends) / 20)).astype(np.float32)


def _room(rng: np.random.Generator) -> Wave:
    """Return an impulse response: the direct sound and a decaying reverberation."""
    decay_s = rng.uniform(0.1, 0.5)
    t = np.arange(SIZE - LENGTH) / MIC_RATE_HZ
    tail = rng.standard_normal(len(t), np.float32) * 10 ** (-3 * t / decay_s)
    tail[: MIC_RATE_HZ // 200] = 0
    tail *= rng.uniform(0.1, 1) / np.sqrt(np.square(tail).sum())
    tail[0] = 1
    return tail.astype(np.float32)
