"""Kaldi's log-mel filter bank of 16 kHz audio, as speaker embeddings take it."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Wave

BANDS = 80
HOP = 160
"""Samples from one frame to the next: 10 ms."""
_WINDOW = 400  # samples of one frame: 25 ms
_FFT = 512
_BLOCK = 16  # frames at once: OpenBLAS starts further threads, which then spin, for products of more
_PREEMPHASIS = 0.97
_LOWEST_HZ = 20.0
_LOWEST_ENERGY = 1.1920929e-07  # the resolution of float32


def filter_bank(wave: Wave) -> NDArray[np.float32]:
    """Return the log energies of a wave, float32 [BANDS, frames], with mean 0 in each band.

    The definition is that of Kaldi's ``compute-fbank-feats`` without dither: only whole frames, their mean removed,
    pre-emphasis, and a Povey window. ``wave`` has at least 25 ms.
    """
    frames = np.lib.stride_tricks.sliding_window_view(wave, _WINDOW)[::HOP]
    frames = frames - frames.mean(1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    frames = (frames - _PREEMPHASIS * before) * _povey()
    energy = np.empty((BANDS, len(frames)), np.float32)
    for at in range(0, len(frames), _BLOCK):
        spectra = np.fft.rfft(frames[at : at + _BLOCK], _FFT, axis=1)
        power = np.square(spectra.real) + np.square(spectra.imag)
        energy[:, at : at + _BLOCK] = _mel_filters() @ power.T
    logs = np.log(np.maximum(energy, _LOWEST_ENERGY))
    return logs - logs.mean(1, keepdims=True)


@cache
def _povey() -> NDArray[np.float32]:
    return np.power(np.hanning(_WINDOW), 0.85).astype(np.float32)


@cache
def _mel_filters() -> NDArray[np.float32]:
    """Triangular filters [BANDS, bins], evenly spaced on the mel scale, and triangular there."""
    mels = _mel_of(np.fft.rfftfreq(_FFT, 1 / MIC_RATE_HZ))
    low, high = _mel_of(np.array([_LOWEST_HZ, MIC_RATE_HZ / 2]))
    edges = np.linspace(low, high, BANDS + 2)
    step = edges[1] - edges[0]
    rising = (mels - edges[:-2, None]) / step
    falling = (edges[2:, None] - mels) / step
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)


def _mel_of(hz: NDArray[np.floating]) -> NDArray[np.float64]:
    return 1127.0 * np.log1p(hz / 700.0)
