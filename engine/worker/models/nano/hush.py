"""Noise suppression for the ears: what is steady beneath a voice is turned down before words are looked for.

A Wiener filter per frequency, its signal-to-noise ratio followed from frame to frame (Ephraim and Malah 1984, "decision
directed"), against a noise that is known beforehand: the lower edge of what has been heard so far. Knows no word.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.core import Pcm

WIDTH, HOP = 512, 128  # samples: 32 ms, every 8 ms
QUANTILE = 0.15  # of a frequency's frames lie below the noise ...
ABOVE = 2.0  # ... by this factor: a lower edge is less than the mean
SMOOTH = 5  # frames that are averaged before that edge is sought
FOLLOW = 0.95  # how much of the last frame's ratio counts for the next
LEAST = 0.15  # noise is turned down by 16 dB, not taken away: pure silence has no cepstrum
Power = NDArray[np.float32]

_WINDOW = np.hanning(WIDTH + 1)[:-1].astype(np.float32)
_SCALE = np.float32(HOP / np.square(_WINDOW).sum())


def noise_of(pcm: Pcm) -> Power:
    """The power of the noise in int16 samples, [WIDTH // 2 + 1]; zeros where there are too few to tell."""
    if len(pcm) < WIDTH + HOP * 4 * SMOOTH:
        return np.zeros(WIDTH // 2 + 1, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(pcm, WIDTH)[::HOP] * _WINDOW
    power = np.square(np.abs(np.fft.rfft(frames))).astype(np.float32)
    sums = np.cumsum(power, 0)
    smooth = (sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH
    return (ABOVE * np.quantile(smooth, QUANTILE, axis=0)).astype(np.float32)


class Hush:
    """A stream of samples with that noise turned down: as many come out as went in, 384 of them at the ``end``."""

    def __init__(self, noise: Power) -> None:
        self._noise = np.maximum(noise, 1.0)
        self._speech = np.zeros_like(noise)  # what the last frame's filter let through, over the noise
        self._waiting = np.zeros(WIDTH - HOP, np.float32)  # the samples before the next frame's newest
        self._sum = np.zeros(WIDTH, np.float32)
        self._skip = WIDTH - HOP  # the first frames begin before the first sample

    def feed(self, pcm: Pcm) -> Pcm:
        """The samples that no later frame changes."""
        samples = np.concatenate([self._waiting, pcm.astype(np.float32)])
        count = (len(samples) - WIDTH) // HOP + 1 if len(samples) >= WIDTH else 0
        out = np.empty(count * HOP, np.float32)
        for n in range(count):
            out[n * HOP : (n + 1) * HOP] = self._frame(samples[n * HOP : n * HOP + WIDTH])
        self._waiting = samples[count * HOP :]
        skipped = min(self._skip, len(out))
        self._skip -= skipped
        return np.clip(out[skipped:], -32768, 32767).astype(np.int16)

    def end(self) -> Pcm:
        """The samples that are left."""
        left = len(self._waiting) - self._skip
        return self.feed(np.zeros(2 * WIDTH, np.int16))[:left]

    def _frame(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        spectrum = np.fft.rfft(samples * _WINDOW)
        over = np.square(np.abs(spectrum)).astype(np.float32) / self._noise
        ratio = FOLLOW * self._speech + (1 - FOLLOW) * np.maximum(over - 1, 0)
        gain = np.maximum(ratio / (1 + ratio), LEAST)
        self._speech = gain * gain * over
        self._sum += np.fft.irfft(spectrum * gain).astype(np.float32) * _WINDOW * _SCALE
        done = self._sum[:HOP].copy()
        self._sum = np.concatenate([self._sum[HOP:], np.zeros(HOP, np.float32)])
        return done
