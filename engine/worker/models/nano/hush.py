"""Noise suppression for the ears: sound that is no voice is turned down before words are looked for.

First comes a small recurrent net (`Voices`), taught with many people's voices (engine/training/nano/train_hush.py): it
estimates for each band of each frame how much of it is voice. Then a Wiener filter turns down steady noise, frequency
by frequency; it follows the signal-to-noise ratio from frame to frame (Ephraim and Malah 1984, "decision directed").
Both know the noise beforehand: the lower edge of what has been heard so far. They know no word.
"""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm
from engine.worker.models.nano.inference import run

WIDTH, HOP = 512, 128  # samples: 32 ms, every 8 ms
QUANTILE = 0.15  # the share of a frequency's frames that lie below the noise ...
ABOVE = 2.0  # ... by this factor: a lower edge is less than the mean
SMOOTH = 5  # frames that are averaged before that edge is sought
FOLLOW = 0.95  # the weight of the last frame's ratio in the next
LEAST = 0.15  # noise is turned down by 16 dB, not taken away: pure silence has no cepstrum
KEPT = 0.3  # the share of the net's input that is let through: where it errs, the filter has some left
BANDS, HIDDEN, LAYERS = 40, 64, 2
BLOCK = 4  # frames that the net judges at once, always the same ones; so late, too, it judges them
UNDER = -2.0  # nats: sound softer than the noise is not told from still softer sound
Power = NDArray[np.float32]
Floats = NDArray[np.float32]

_WINDOW = np.hanning(WIDTH + 1)[:-1].astype(np.float32)
_SCALE = np.float32(HOP / np.square(_WINDOW).sum())


def _shares() -> Floats:
    """Return which part of each frequency belongs to which band, [BANDS, WIDTH // 2 + 1]: triangles, even in mel, sum
    1."""
    mel = 2595 * np.log10(1 + np.fft.rfftfreq(WIDTH, 1 / MIC_RATE_HZ) / 700)
    position = mel / mel[-1] * (BANDS - 1)
    return np.maximum(0, 1 - np.abs(position - np.arange(BANDS)[:, None])).astype(np.float32)


SHARES = _shares()


def noise_of(pcm: Pcm) -> Power:
    """The power of the noise in int16 samples, [WIDTH // 2 + 1]; zeros where there are too few to tell."""
    if len(pcm) < WIDTH + HOP * 4 * SMOOTH:
        return np.zeros(WIDTH // 2 + 1, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(pcm, WIDTH)[::HOP] * _WINDOW
    power = np.square(np.abs(np.fft.rfft(frames))).astype(np.float32)
    sums = np.cumsum(power, 0)
    smooth = (sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH
    return (ABOVE * np.quantile(smooth, QUANTILE, axis=0)).astype(np.float32)


def features_of(bands: Floats, floor: Floats) -> Floats:
    """Power of bands [frames, BANDS] and the noise's [BANDS] -> [frames, 2 * BANDS]: over the noise, over the mean."""
    logs = np.log(np.maximum(bands, 1))
    over = np.maximum(logs - np.log(np.maximum(floor, 1)), UNDER)
    return (np.concatenate([over, logs - logs.mean(1, keepdims=True)], 1) / 4).astype(np.float32)


class Hush:
    """A stream of samples with its noise turned down: as many come out as went in, the last at the ``end``.

    ``noise`` is the power of the noise beneath the samples, ``left`` the part of it that `Voices` leaves (see
    `noise_of`). The result does not depend on how the samples are cut.
    """

    def __init__(self, net: ort.InferenceSession, noise: Power, left: Power) -> None:
        self._voices = Voices(net, noise)
        self._steady = Wiener(left)

    def feed(self, pcm: Pcm) -> Pcm:
        """The samples that no later one changes."""
        return self._steady.feed(self._voices.feed(pcm))

    def end(self) -> Pcm:
        """The samples that are left."""
        return np.concatenate([self._steady.feed(self._voices.end()), self._steady.end()])


def through(stage: Voices | Wiener | Hush, pcm: Pcm) -> Pcm:
    """All of it at once."""
    return np.concatenate([stage.feed(pcm), stage.end()])


class Voices:
    """The net's part. Samples are taken in blocks from the first one on, and each is judged with the next in view."""

    def __init__(self, net: ort.InferenceSession, noise: Power) -> None:
        self._net = net
        self._floor = SHARES @ noise
        self._deaf = not noise.any()
        self._state = np.zeros((LAYERS, 1, HIDDEN), np.float32)
        self._waiting = np.zeros(WIDTH - HOP, np.float32)  # the samples before the next frame's newest
        self._before = np.zeros((BLOCK, WIDTH // 2 + 1), np.complex64)  # the block whose gains come next
        self._sum = np.zeros(WIDTH - HOP, np.float32)
        self._skip = WIDTH - HOP + BLOCK * HOP  # the first frames begin before the first sample
        self._owed = 0

    def feed(self, pcm: Pcm) -> Pcm:
        """The samples that no later frame changes."""
        samples = np.concatenate([self._waiting, pcm.astype(np.float32)])
        step = BLOCK * HOP
        count = max(0, (len(samples) - (WIDTH - HOP)) // step)
        ends = range(0, count * step, step)
        out = np.concatenate([self._sum[:0], *(self._block(samples[at : at + step + WIDTH - HOP]) for at in ends)])
        self._waiting = samples[count * step :]
        skipped = min(self._skip, len(out))
        self._skip -= skipped
        self._owed += len(pcm) - len(out) + skipped
        return np.clip(np.rint(out[skipped:]), -32768, 32767).astype(np.int16)

    def end(self) -> Pcm:
        """The samples that are left."""
        left = self._owed
        return self.feed(np.zeros(2 * WIDTH + 2 * BLOCK * HOP, np.int16))[:left]

    def _block(self, samples: Floats) -> Floats:
        """Take BLOCK frames and return the samples of the block before."""
        spectra = np.fft.rfft(np.lib.stride_tricks.sliding_window_view(samples, WIDTH)[::HOP] * _WINDOW)
        waves = np.fft.irfft(self._before * self._gains(spectra)).astype(np.float32) * _WINDOW * _SCALE
        self._before = spectra
        total = np.concatenate([self._sum, np.zeros(BLOCK * HOP, np.float32)])
        for n, wave in enumerate(waves):
            total[n * HOP : n * HOP + WIDTH] += wave
        self._sum = total[BLOCK * HOP :]
        return total[: BLOCK * HOP]

    def _gains(self, spectra: NDArray[np.complexfloating]) -> Floats:
        """Return the gain of every frequency of the block before, [BLOCK, WIDTH // 2 + 1]."""
        if self._deaf:
            return np.ones((BLOCK, WIDTH // 2 + 1), np.float32)
        bands = np.square(np.abs(spectra)).astype(np.float32) @ SHARES.T
        given = {"features": features_of(bands, self._floor)[None], "carried": self._state}
        gains, self._state = run(self._net, ("gains", "carried_out"), given)
        return KEPT + (1 - KEPT) * (gains[0] @ SHARES)


class Wiener:
    """The filter's part: what is steady is turned down, 384 samples later."""

    def __init__(self, noise: Power) -> None:
        self._noise = np.maximum(noise, 1.0)
        self._speech = np.zeros_like(noise)  # the power that the last frame's filter let through, over the noise
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
        return np.clip(np.rint(out[skipped:]), -32768, 32767).astype(np.int16)

    def end(self) -> Pcm:
        """The samples that are left."""
        left = len(self._waiting) - self._skip
        return self.feed(np.zeros(2 * WIDTH, np.int16))[:left]

    def _frame(self, samples: Floats) -> Floats:
        spectrum = np.fft.rfft(samples * _WINDOW)
        over = np.square(np.abs(spectrum)).astype(np.float32) / self._noise
        ratio = FOLLOW * self._speech + (1 - FOLLOW) * np.maximum(over - 1, 0)
        gain = np.maximum(ratio / (1 + ratio), LEAST)
        self._speech = gain * gain * over
        self._sum += np.fft.irfft(spectrum * gain).astype(np.float32) * _WINDOW * _SCALE
        done = self._sum[:HOP].copy()
        self._sum = np.concatenate([self._sum[HOP:], np.zeros(HOP, np.float32)])
        return done
