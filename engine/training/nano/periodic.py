"""How much of a voice repeats from one period to the next, band by band: harmonics against noise. Any 16 kHz wave.

Two neighbouring stretches of two periods each are compared where the voice is voiced. Their lag is found below 4 kHz
and used in every band, so that noise above cannot choose a lag that flatters it; noise of 3 to 4 kHz can, by 2 dB.
What repeats is harmonics, what does not is noise (and whatever changes from period to period, jitter and filters, in
all voices alike). Knows no model and no teacher.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16000
EDGES_HZ = (0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 7800)
BANDS = len(EDGES_HZ) - 1
HIGH = 4  # bands from this one on lie above 4 kHz
TELLING = 4  # bands below this one tell the lag
HOP = 160
UP = 8  # oversampling, so that a lag is known to 0.06 of a sample
POINTS = 512  # samples of a stretch of two periods
SHORTEST, LONGEST = 64, 230  # periods in samples: 250 and 70 Hz
STRETCH = 400  # samples compared to find the period roughly
VOICED = 0.8  # similarity below 3 kHz from which a place counts as voiced
QUIET = 0.05  # of the wave's loudest 25 ms, as an amplitude
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Periods:
    """What was found at the voiced places of a wave.

    hops: int [n], places in steps of 10 ms; repeats: [n, BANDS], the similarity of neighbouring periods in -1..1, whose
    mean is the share of harmonics; peaks: [n, BANDS], the fourth moment over the squared second: 3 for noise, more
    where the energy of a period comes in one click.
    """

    hops: NDArray[np.int64]
    repeats: Floats
    peaks: Floats


def periods(wave: NDArray[np.float32]) -> Periods:
    """Analyse [n] samples at 16 kHz."""
    low = band(wave, 0, 3000, 1)
    places, lags = voiced(low)
    if not len(places):
        return Periods(np.zeros(0, np.int64), np.zeros((0, BANDS)), np.zeros((0, BANDS)))
    middles, bands = places * HOP * UP, [band(wave, begin, end, UP) for begin, end in pairwise(EDGES_HZ)]
    lags = refine(bands[:TELLING], middles, lags * UP)
    repeats, peaks = [], []
    for one in bands:
        first, second = stretches(one, middles, lags, lags)
        power = np.sqrt((first**2).sum(1) * (second**2).sum(1)) + 1e-12
        repeats.append((first * second).sum(1) / power)
        peaks.append((first**4).sum(1) * (_HANN**2).sum() / ((first**2).sum(1) ** 2 + 1e-20))
    return Periods(places, np.stack(repeats, 1), np.stack(peaks, 1))


def harmonics_db(found: list[Periods]) -> Floats:
    """Harmonics to noise of several waves together, [BANDS] in dB, from -20 to 20."""
    share = np.concatenate([one.repeats for one in found]).mean(0).clip(0.01, 0.99)
    return 10 * np.log10(share / (1 - share))


def peaks_db(found: list[Periods]) -> Floats:
    """How much the energy of a period comes in one click, [BANDS] in dB over Gaussian noise."""
    return 10 * np.log10(np.concatenate([one.peaks for one in found]).mean(0) / 3)


def band(wave: NDArray[np.float32], begin_hz: float, end_hz: float, up: int) -> Floats:
    """What lies between two frequencies, edges 100 Hz soft, at ``up`` times the rate."""
    spectrum = np.fft.rfft(wave.astype(np.float64))
    at_hz = np.fft.rfftfreq(len(wave), 1 / RATE_HZ)
    rise = np.ones_like(at_hz) if begin_hz == 0 else np.clip((at_hz - begin_hz) / 100 + 0.5, 0, 1)
    fall = np.clip((end_hz - at_hz) / 100 + 0.5, 0, 1)
    return np.fft.irfft(spectrum * rise * fall, len(wave) * up) * up


def voiced(low: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Places (in hops) where the low band repeats, and after how many samples; the shortest lag that is nearly best."""
    reach = STRETCH + LONGEST
    count = (len(low) - 2 * reach) // HOP
    if count <= 0:
        return np.zeros(0, np.int64), np.zeros(0)
    begins = reach - STRETCH // 2 + HOP * np.arange(count)
    windows = np.lib.stride_tricks.sliding_window_view(low, reach)[begins]
    alike = _similarity(windows)
    best = alike.max(1)
    near = alike >= 0.92 * best[:, None]
    lags = _first_peak(alike, near)
    loud = np.sqrt((windows[:, :STRETCH] ** 2).mean(1))
    keep = (best > VOICED) & (loud > QUIET * loud.max()) & (lags > 0)
    middles = begins + STRETCH // 2 + (lags + SHORTEST) / 2  # between the two stretches that are compared
    return np.round(middles[keep] / HOP).astype(np.int64), (lags + SHORTEST)[keep].astype(np.float64)


def _similarity(windows: Floats) -> Floats:
    """[n, STRETCH + LONGEST] -> correlation of the first STRETCH samples with those SHORTEST.. LONGEST later."""
    size = 1024
    first = np.fft.rfft(windows[:, :STRETCH], size)
    products = np.fft.irfft(np.fft.rfft(windows, size) * first.conj(), size)[:, SHORTEST:LONGEST]
    energy = np.cumsum(np.pad(windows**2, ((0, 0), (1, 0))), 1)
    later = energy[:, SHORTEST + STRETCH : LONGEST + STRETCH] - energy[:, SHORTEST:LONGEST]
    return products / (np.sqrt(energy[:, STRETCH : STRETCH + 1] * later) + 1e-9)


def _first_peak(alike: Floats, near: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first local maximum of each row that is nearly the best, 0 where there is none inside."""
    peak = near.copy()
    peak[:, 0] = peak[:, -1] = False
    peak[:, 1:-1] &= (alike[:, 1:-1] >= alike[:, :-2]) & (alike[:, 1:-1] >= alike[:, 2:])
    return np.where(peak.any(1), peak.argmax(1), 0)


def refine(bands: list[Floats], middles: NDArray[np.int64], lags: Floats) -> Floats:
    """The lag within 4 % at which all these bands together repeat best, in samples of the oversampled wave. Each counts
    alike: the loud one at the bottom alone is too slow to tell a lag well enough for the bands above it.
    """
    steps = np.linspace(0.96, 1.04, 65)
    alike = np.stack([sum(_alike(one, middles, lags * step, lags) for one in bands) for step in steps], 1)
    best = alike.argmax(1).clip(1, len(steps) - 2)
    rows = np.arange(len(lags))
    left, here, right = alike[rows, best - 1], alike[rows, best], alike[rows, best + 1]
    shift = np.clip((left - right) / (2 * np.minimum(left - 2 * here + right, -1e-9)), -1, 1)
    return lags * (steps[best] + shift * (steps[1] - steps[0]))


def _alike(wave: Floats, middles: NDArray[np.int64], lags: Floats, spans: Floats) -> Floats:
    first, second = stretches(wave, middles, lags, spans)
    return (first * second).sum(1) / (np.sqrt((first**2).sum(1) * (second**2).sum(1)) + 1e-12)


def stretches(wave: Floats, middles: NDArray[np.int64], lags: Floats, spans: Floats) -> tuple[Floats, Floats]:
    """Two Hann windows of two ``spans`` each, ``lags`` apart and around the middles: [n, POINTS] twice."""
    offsets = np.linspace(-1, 1, POINTS)[None] * spans[:, None]
    pair = [
        wave[np.round(middles[:, None] + side * lags[:, None] / 2 + offsets).astype(np.int64).clip(0, len(wave) - 1)]
        for side in (-1, 1)
    ]
    return pair[0] * _HANN, pair[1] * _HANN


_HANN = np.hanning(POINTS)
