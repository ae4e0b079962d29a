"""Whisper's input features: log-mel spectra of 16 kHz audio, as end-of-turn models take them."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Wave

BANDS = 80
HOP = 160
"""Samples from one spectrum to the next: 10 ms."""
_WINDOW = 400  # samples of one spectrum: 25 ms
_BLOCK = 16  # spectra at once: OpenBLAS starts further threads, which then spin, for products of more
_DYNAMIC_RANGE = 8.0  # powers of ten below the loudest value, at most
_LOWEST_POWER = 1e-10


def log_mel(wave: Wave) -> NDArray[np.float32]:
    """Return the log-mel spectra of a wave, float32 [BANDS, samples // HOP].

    The wave is brought to mean 0 and variance 1 first. The definition is that of openai-whisper's
    ``log_mel_spectrogram``: mirrored edges, last spectrum dropped, values within 8 powers of ten of the largest.
    """
    normal = (wave - wave.mean()) / np.sqrt(wave.var() + 1e-7)
    padded = np.pad(normal, _WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][: len(wave) // HOP]
    power = np.empty((BANDS, len(frames)), np.float32)
    for at in range(0, len(frames), _BLOCK):
        spectra = np.fft.rfft(frames[at : at + _BLOCK] * _hann(), axis=1)
        power[:, at : at + _BLOCK] = _mel_filters() @ (np.square(spectra.real) + np.square(spectra.imag)).T
    logs = np.log10(np.maximum(power, _LOWEST_POWER))
    limited = np.maximum(logs, logs.max() - _DYNAMIC_RANGE)
    return ((limited + 4.0) / 4.0).astype(np.float32)


@cache
def _hann() -> NDArray[np.float32]:
    return np.hanning(_WINDOW + 1)[:-1].astype(np.float32)


@cache
def _mel_filters() -> NDArray[np.float32]:
    """Triangular filters [BANDS, bins], each of the same area, evenly spaced on Slaney's mel scale."""
    bins_hz = np.fft.rfftfreq(_WINDOW, 1 / MIC_RATE_HZ)
    edges_hz = _hz_of(np.linspace(0.0, _mel_of(MIC_RATE_HZ / 2), BANDS + 2))
    low, centre, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising = (bins_hz - low) / (centre - low)
    falling = (high - bins_hz) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * 2.0 / (high - low)).astype(np.float32)


# Slaney's scale is linear up to 1,000 Hz (15 mel), and logarithmic above.
_LINEAR_HZ = 200.0 / 3
_KNEE_HZ = 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0


def _mel_of(hz: float) -> float:
    return float(_KNEE_MEL + np.log(hz / _KNEE_HZ) / _LOG_STEP) if hz >= _KNEE_HZ else hz / _LINEAR_HZ


def _hz_of(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < _KNEE_MEL, mel * _LINEAR_HZ, _KNEE_HZ * np.exp((mel - _KNEE_MEL) * _LOG_STEP))
