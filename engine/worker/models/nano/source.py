"""nano's source-filter synthesizer: F0 and band gains every 10 ms to 24 kHz audio."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.core import SPEAKER_RATE_HZ
from engine.worker.models.nano.voice import FRAME_S, Floats
from engine.worker.randomness import GOLDEN, mixed

HOP = SPEAKER_RATE_HZ // 100
FFT = 1024
BANDS = 64
TRAINED_TOP_HZ = 8000.0
"""Highest frequency of the network's training audio (16 kHz). Above it, the network only predicts levels at TOPS_HZ."""
TOPS_HZ = (8500.0, 9500.0, 10500.0, 11500.0)


class ExcitationSource:
    """Source-filter synthesizer with all state carried between calls.

    Harmonics in phase (a Dirichlet kernel) and noise pass through minimum-phase filters, derived from their gains with
    the folded cepstrum, and are overlap-added every 10 ms. The noise depends only on the seed and the sample index.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = np.uint64(seed % 2**32)
        self._samples = 0
        self._phase = 0.0
        self._f0_hz: float | None = None
        self._pulses = np.zeros(HOP)
        self._noise = np.zeros(HOP)
        self._remainder = np.zeros(FFT // HOP * HOP)

    @property
    def frames(self) -> int:
        """Number of codec frames rendered."""
        return round(self._samples / SPEAKER_RATE_HZ / FRAME_S)

    def left(self) -> dict[str, Any]:
        """Return all state except the seed."""
        return {name: value for name, value in vars(self).items() if name != "_seed"}

    def go_on(self, left: dict[str, Any]) -> None:
        """Restore the state that ``left`` returned."""
        vars(self).update(left)

    def render(self, controls: Floats) -> Floats:
        """Render control values to audio.

        Args:
            controls: float32 [T, 133], one row per 10 ms: log F0, 64 harmonic and 64 noise log gains from 0 to 8 kHz,
                and
                the rise of both from 8 kHz to each of `TOPS_HZ`.

        Returns:
            float32 [T x 240] samples from -1 to 1.
        """
        hops = len(controls)
        pulses, self._pulses = _halves(self._pulses, self._pulse_train(controls[:, 0]))
        noise, self._noise = _halves(self._noise, white(self._seed, self._samples, hops * HOP))
        self._samples += hops * HOP
        harmonic, breath, rise = np.split(controls[:, 1:], [BANDS, 2 * BANDS], axis=1)
        spectrum = pulses * response(harmonic, rise) + noise * response(breath, rise)
        sound = self._overlap(np.fft.irfft(spectrum, FFT))
        return np.clip(sound, -1, 1).astype(np.float32)

    def _pulse_train(self, log_f0: Floats) -> NDArray[np.float64]:
        f0_hz = np.clip(np.exp(log_f0.astype(np.float64)), 60, 450)
        known = np.concatenate([[f0_hz[0] if self._f0_hz is None else self._f0_hz], f0_hz])
        self._f0_hz = float(f0_hz[-1])
        rising = np.arange(1, HOP + 1) / HOP
        f0_hz = (known[:-1, None] + np.diff(known)[:, None] * rising).ravel()
        phase = self._phase + np.cumsum(f0_hz / SPEAKER_RATE_HZ)
        self._phase = float(phase[-1] % 1)
        return pulses_at(phase % 1, f0_hz)

    def _overlap(self, pieces: NDArray[np.float64]) -> NDArray[np.float64]:
        """Overlap-add pieces [T, FFT] that start one hop apart; carry the tail to the next call."""
        hops, rows = len(pieces), FFT // HOP + 1
        pieces = np.pad(pieces, ((0, 0), (0, rows * HOP - FFT))).reshape(hops, rows, HOP)
        out = np.zeros((hops + rows - 1, HOP))
        out[: rows - 1] = self._remainder.reshape(rows - 1, HOP)
        for row in range(rows):
            out[row : row + hops] += pieces[:, row]
        self._remainder = out[hops:].ravel()
        return out[:hops].ravel()


def _halves(before: NDArray[np.float64], fresh: NDArray[np.float64]) -> tuple[NDArray[np.complex128], Any]:
    """Return the spectra of all windows of two hops that end with a new hop, and the last hop."""
    whole = np.concatenate([before, fresh]).reshape(-1, HOP)
    return np.fft.rfft(np.concatenate([whole[:-1], whole[1:]], 1) * _WINDOW, FFT), whole[-1]


def pulses_at(phase: NDArray[np.float64], f0_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all harmonics in phase up to 11.7 kHz, scaled to unit power up to 7.8 kHz as in training."""
    harmonics, trained = np.floor(0.4875 * SPEAKER_RATE_HZ / f0_hz), np.floor(7800 / f0_hz)
    sine = np.sin(np.pi * phase)
    peak = np.abs(sine) < 1e-4
    kernel = np.sin((2 * harmonics + 1) * np.pi * phase) / np.where(peak, 1, sine)
    return (np.where(peak, 2 * harmonics + 1, kernel) - 1) / np.sqrt(2 * trained)


def white(seed: np.uint64, begin: int, count: int) -> NDArray[np.float64]:
    """Return uniform white noise from hashed sample indices, with the spectral density of unit power at 16 kHz."""
    counters = np.arange(begin, begin + count, dtype=np.uint64) + (seed << np.uint64(32))
    uniform = (mixed(counters * np.uint64(GOLDEN)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (uniform - 0.5) * np.sqrt(12 * SPEAKER_RATE_HZ / 16000)


def response(bands: Floats, rise: Floats) -> NDArray[np.complex128]:
    """Return the minimum-phase spectrum [T, 513], computed with the folded cepstrum.

    ``bands`` are log gains [T, 64] up to 8 kHz. The log gains at `TOPS_HZ` are the last band's plus ``rise`` [T, 4].
    """
    points = np.concatenate([bands, bands[:, -1:] + rise], 1)
    log_gain = np.clip(points[:, _BELOW] * (1 - _SHARE) + points[:, _BELOW + 1] * _SHARE, -12, 6)
    return np.exp(np.fft.rfft(np.fft.irfft(log_gain, FFT) * _FOLD, FFT))


def _bands_of_bins() -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return, for each bin, the band below it and the fraction of the way to the next band.

    Bands are evenly spaced in mel from 0 to 8 kHz, then at `TOPS_HZ`. Above these, the last band applies.
    """
    edges_hz = 700 * ((1 + TRAINED_TOP_HZ / 700) ** np.linspace(0, 1, BANDS) - 1)
    points_hz = np.append(edges_hz, TOPS_HZ)
    position = np.interp(np.fft.rfftfreq(FFT, 1 / SPEAKER_RATE_HZ), points_hz, np.arange(len(points_hz)))
    below = np.minimum(position.astype(np.intp), len(points_hz) - 2)
    return below, position - below


_WINDOW = np.hanning(2 * HOP + 1)[:-1]
_FOLD = np.where(np.arange(FFT) < FFT // 2, 2.0, 0.0)
_FOLD[[0, FFT // 2]] = 1
_BELOW, _SHARE = _bands_of_bins()
