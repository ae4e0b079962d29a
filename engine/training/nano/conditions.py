"""Simulated recording conditions: noise, a room, a low level, clipping.

Each condition maps speech (int16 [n] at MIC_RATE_HZ) to the same length, deterministically by seed. They approximate
real microphones and are not recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve, lfilter

from engine.core import MIC_RATE_HZ, Pcm

Samples = NDArray[np.float64]
DECAY_S = 0.35  # reverberation time (60 dB) of a furnished living room


def with_noise(pcm: Pcm, snr_db: float, seed: int = 0) -> Pcm:
    """Add steady pink noise (-3 dB per octave) at ``snr_db`` below the loud half of the speech."""
    wave = pcm.astype(np.float64)
    noise = pink(len(wave), np.random.default_rng(seed))
    return _pcm(wave + noise * speech_level(wave) / level(noise) * 10 ** (-snr_db / 20))


def in_a_room(pcm: Pcm, seed: int = 0) -> Pcm:
    """Add exponentially decaying reverberation with the energy of the direct sound."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(DECAY_S * MIC_RATE_HZ)) / MIC_RATE_HZ
    tail = rng.normal(0, 1, len(t)) * 10 ** (-3 * t / DECAY_S)
    tail[: MIC_RATE_HZ // 200] = 0  # no reflection before 5 ms
    tail /= np.sqrt(np.square(tail).sum())
    tail[0] = 1
    wave = pcm.astype(np.float64)
    heard = fftconvolve(wave, tail)[: len(wave)]
    return _pcm(heard * level(wave) / level(heard))


def far(pcm: Pcm) -> Pcm:
    """Reduce the level by 30 dB, as with a wrong microphone gain, and add some hiss."""
    hiss = np.random.default_rng(0).normal(0, 3, len(pcm))
    return _pcm(pcm * 10 ** (-30 / 20) + hiss)


def clipped(pcm: Pcm) -> Pcm:
    """Clip the loudest tenth of the speech."""
    limit = np.quantile(np.abs(pcm[np.abs(pcm) > np.abs(pcm).max() / 20]), 0.9)
    return _pcm(np.clip(pcm, -limit, limit) * 0.9 * 32767 / limit)


CONDITIONS: dict[str, Callable[[Pcm], Pcm]] = {
    "clean": lambda pcm: pcm,
    "noise 20 dB": lambda pcm: with_noise(pcm, 20),
    "noise 10 dB": lambda pcm: with_noise(pcm, 10),
    "noise 5 dB": lambda pcm: with_noise(pcm, 5),
    "room": in_a_room,
    "low level": far,
    "clipped": clipped,
}
BARS = {"clean": 0.95, "noise 20 dB": 0.92, "noise 10 dB": 0.80}
"""Minimum shares of correctly recognized requests."""


def pink(count: int, rng: np.random.Generator) -> Samples:
    """Return white noise filtered with Kellet's filter (about 1/f from 20 Hz to 8 kHz)."""
    return cast(
        Samples,
        lfilter(
            [0.049922, -0.095993, 0.050612, -0.004408], [1, -2.494956, 2.017265, -0.522189], rng.normal(0, 1, count)
        ),
    )


def level(wave: NDArray[np.floating]) -> float:
    """Return the root mean square, at least 1e-9."""
    return max(1e-9, float(np.sqrt(np.square(wave).mean())))


def speech_level(wave: NDArray[np.floating]) -> float:
    """Return the root mean square of the 20 ms frames above the median, which excludes pauses."""
    frames = wave[: len(wave) // 320 * 320].reshape(-1, 320)
    power = np.square(frames).mean(1)
    return float(np.sqrt(power[power >= np.median(power)].mean()))


def _pcm(wave: Samples) -> Pcm:
    return np.clip(np.round(wave), -32768, 32767).astype(np.int16)
