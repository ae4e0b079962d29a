"""Noise suppression before speech recognition.

First a small recurrent network (`Voices`), trained with many voices (engine/training/nano/train_hush.py), estimates how
much of each band of each frame is speech. Then a Wiener filter reduces steady noise per frequency. It tracks the
signal-to-noise ratio from frame to frame (Ephraim and Malah 1984, "decision directed"). Both start from the noise
spectrum, estimated from the quietest part of the audio so far.
"""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm
from engine.worker.models.nano.inference import run

WIDTH, HOP = 512, 128  # samples: 32 ms, every 8 ms
QUANTILE = 0.15  # quantile of the power of a frequency's frames ...
ABOVE = 2.0  # ... times this factor estimates the mean noise power
SMOOTH = 5  # frames averaged before taking the quantile
FOLLOW = 0.95  # weight of the previous frame's ratio
LEAST = 0.15  # minimum gain (-16 dB); pure silence has no cepstrum
KEPT = 0.3  # minimum gain of the network, so that its errors do not remove speech
BANDS, HIDDEN, LAYERS = 40, 64, 2
BLOCK = 4  # frames per block of the network, also its delay
UNDER = -2.0  # nats; lower bound of the level relative to the noise
Power = NDArray[np.float32]
Floats = NDArray[np.float32]

_WINDOW = np.hanning(WIDTH + 1)[:-1].astype(np.float32)
_SCALE = np.float32(HOP / np.square(_WINDOW).sum())


def _shares() -> Floats:
    """Return the weights [BANDS, WIDTH // 2 + 1] of each frequency in each band: triangles evenly spaced in mel,
    summing to 1.
    """
    mel = 2595 * np.log10(1 + np.fft.rfftfreq(WIDTH, 1 / MIC_RATE_HZ) / 700)
    position = mel / mel[-1] * (BANDS - 1)
    return np.maximum(0, 1 - np.abs(position - np.arange(BANDS)[:, None])).astype(np.float32)


SHARES = _shares()


def noise_of(pcm: Pcm) -> Power:
    """Return the noise power [WIDTH // 2 + 1] of int16 samples; zeros if there are too few."""
    if len(pcm) < WIDTH + HOP * 4 * SMOOTH:
        return np.zeros(WIDTH // 2 + 1, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(pcm, WIDTH)[::HOP] * _WINDOW
    power = np.square(np.abs(np.fft.rfft(frames))).astype(np.float32)
    sums = np.cumsum(power, 0)
    smooth = (sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH
    return (ABOVE * np.quantile(smooth, QUANTILE, axis=0)).astype(np.float32)


def features_of(bands: Floats, floor: Floats) -> Floats:
    """Return the network's input [frames, 2 * BANDS]: log band power relative to the noise, and relative to the mean.

    ``bands`` is the power [frames, BANDS], ``floor`` the noise power [BANDS].
    """
    logs = np.log(np.maximum(bands, 1))
    over = np.maximum(logs - np.log(np.maximum(floor, 1)), UNDER)
    return (np.concatenate([over, logs - logs.mean(1, keepdims=True)], 1) / 4).astype(np.float32)


class Hush:
    """Noise reduction of a stream of samples. The output has the same length; ``end`` returns the delayed rest.

    The result does not depend on how the samples are cut into pieces.

    Args:
        net: The network of `Voices`.
        noise: Power of the noise, from `noise_of`.
        left: Power of the noise that remains after `Voices`.
    """

    def __init__(self, net: ort.InferenceSession, noise: Power, left: Power) -> None:
        self._voices = Voices(net, noise)
        self._steady = Wiener(left)

    def feed(self, pcm: Pcm) -> Pcm:
        """Return the samples that are final."""
        return self._steady.feed(self._voices.feed(pcm))

    def end(self) -> Pcm:
        """Return the remaining samples."""
        return np.concatenate([self._steady.feed(self._voices.end()), self._steady.end()])


def through(stage: Voices | Wiener | Hush, pcm: Pcm) -> Pcm:
    """Process all samples at once."""
    return np.concatenate([stage.feed(pcm), stage.end()])


class Voices:
    """The network's stage. It processes samples in fixed blocks, each with the next block as look-ahead."""

    def __init__(self, net: ort.InferenceSession, noise: Power) -> None:
        self._net = net
        self._floor = SHARES @ noise
        self._deaf = not noise.any()
        self._state = np.zeros((LAYERS, 1, HIDDEN), np.float32)
        self._waiting = np.zeros(WIDTH - HOP, np.float32)  # samples shared with the next frame
        self._before = np.zeros((BLOCK, WIDTH // 2 + 1), np.complex64)  # spectra of the block whose gains come next
        self._sum = np.zeros(WIDTH - HOP, np.float32)
        self._skip = WIDTH - HOP + BLOCK * HOP  # output before the first input sample
        self._owed = 0

    def feed(self, pcm: Pcm) -> Pcm:
        """Return the samples that are final."""
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
        """Return the remaining samples."""
        left = self._owed
        return self.feed(np.zeros(2 * WIDTH + 2 * BLOCK * HOP, np.int16))[:left]

    def _block(self, samples: Floats) -> Floats:
        """Process BLOCK frames and return the samples of the previous block."""
        spectra = np.fft.rfft(np.lib.stride_tricks.sliding_window_view(samples, WIDTH)[::HOP] * _WINDOW)
        waves = np.fft.irfft(self._before * self._gains(spectra)).astype(np.float32) * _WINDOW * _SCALE
        self._before = spectra
        total = np.concatenate([self._sum, np.zeros(BLOCK * HOP, np.float32)])
        for n, wave in enumerate(waves):
            total[n * HOP : n * HOP + WIDTH] += wave
        self._sum = total[BLOCK * HOP :]
        return total[: BLOCK * HOP]

    def _gains(self, spectra: NDArray[np.complexfloating]) -> Floats:
        """Return the gains [BLOCK, WIDTH // 2 + 1] of the previous block."""
        if self._deaf:
            return np.ones((BLOCK, WIDTH // 2 + 1), np.float32)
        bands = np.square(np.abs(spectra)).astype(np.float32) @ SHARES.T
        given = {"features": features_of(bands, self._floor)[None], "carried": self._state}
        gains, self._state = run(self._net, ("gains", "carried_out"), given)
        return KEPT + (1 - KEPT) * (gains[0] @ SHARES)


class Wiener:
    """The Wiener filter's stage: reduces steady noise, with a delay of 384 samples."""

    def __init__(self, noise: Power) -> None:
        self._noise = np.maximum(noise, 1.0)
        self._speech = np.zeros_like(noise)  # output power of the previous frame, relative to the noise
        self._waiting = np.zeros(WIDTH - HOP, np.float32)  # samples shared with the next frame
        self._sum = np.zeros(WIDTH, np.float32)
        self._skip = WIDTH - HOP  # output before the first input sample

    def feed(self, pcm: Pcm) -> Pcm:
        """Return the samples that are final."""
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
        """Return the remaining samples."""
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
