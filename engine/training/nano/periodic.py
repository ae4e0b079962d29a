"""Measures how much of a voice repeats from one period to the next, per frequency band: harmonics against noise.

Works on any 16 kHz wave. Where the voice is voiced, two neighbouring stretches of two periods each are compared. Their
lag is determined below 4 kHz and used for every band, so that noise above cannot choose a lag that flatters it; noise
of 3 to 4 kHz can, by 2 dB. The repeating part counts as harmonics, the rest as noise; it includes changes from period
to period (jitter, moving filters), which affect all voices alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16000
EDGES_HZ = (0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 7800)
BANDS = len(EDGES_HZ) - 1
HIGH = 4  # first band above 4 kHz
TELLING = 4  # bands below this one determine the lag
HOP = 160
UP = 8  # oversampling, lags are exact to 0.06 of a sample
POINTS = 512  # samples of a stretch of two periods
SHORTEST, LONGEST = 64, 230  # periods in samples: 250 and 70 Hz
STRETCH = 400  # samples compared for the first estimate of the period
VOICED = 0.8  # similarity below 3 kHz from which a place counts as voiced
QUIET = 0.05  # of the wave's loudest 25 ms, as an amplitude
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Periods:
    """Results at the voiced places of a wave.

    hops: int [n], places in steps of 10 ms; repeats: [n, BANDS], the similarity of neighbouring periods in -1..1, whose
    mean is the share of harmonics; peaks: [n, BANDS], the fourth moment over the squared second: 3 for noise, more
    where the energy of a period is concentrated in one click.
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
    """Return the harmonics-to-noise ratio of several waves together, [BANDS] in dB, limited to -20..20."""
    share = np.concatenate([one.repeats for one in found]).mean(0).clip(0.01, 0.99)
    return 10 * np.log10(share / (1 - share))


def peaks_db(found: list[Periods]) -> Floats:
    """Return how concentrated the energy of a period is, [BANDS] in dB relative to Gaussian noise."""
    return 10 * np.log10(np.concatenate([one.peaks for one in found]).mean(0) / 3)


def band(wave: NDArray[np.float32], begin_hz: float, end_hz: float, up: int) -> Floats:
    """Return the part between two frequencies, with edges 100 Hz wide, at ``up`` times the sampling rate."""
    spectrum = np.fft.rfft(wave.astype(np.float64))
    at_hz = np.fft.rfftfreq(len(wave), 1 / RATE_HZ)
    rise = np.ones_like(at_hz) if begin_hz == 0 else np.clip((at_hz - begin_hz) / 100 + 0.5, 0, 1)
    fall = np.clip((end_hz - at_hz) / 100 + 0.5, 0, 1)
    return np.fft.irfft(spectrum * rise * fall, len(wave) * up) * up


def voiced(low: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the voiced places (in hops) and their lags in samples: the shortest lag that is nearly the best."""
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
    middles = begins + STRETCH // 2 + (lags + SHORTEST) / 2  # midpoint of the two compared stretches
    return np.round(middles[keep] / HOP).astype(np.int64), (lags + SHORTEST)[keep].astype(np.float64)


def _similarity(windows: Floats) -> Floats:
    """Correlate the first STRETCH samples of windows [n, STRETCH + LONGEST] with those SHORTEST..LONGEST later."""
    size = 1024
    first = np.fft.rfft(windows[:, :STRETCH], size)
    products = np.fft.irfft(np.fft.rfft(windows, size) * first.conj(), size)[:, SHORTEST:LONGEST]
    energy = np.cumsum(np.pad(windows**2, ((0, 0), (1, 0))), 1)
    later = energy[:, SHORTEST + STRETCH : LONGEST + STRETCH] - energy[:, SHORTEST:LONGEST]
    return products / (np.sqrt(energy[:, STRETCH : STRETCH + 1] * later) + 1e-9)


def _first_peak(alike: Floats, near: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return each row's first local maximum that is nearly the best, 0 if there is none."""
    peak = near.copy()
    peak[:, 0] = peak[:, -1] = False
    peak[:, 1:-1] &= (alike[:, 1:-1] >= alike[:, :-2]) & (alike[:, 1:-1] >= alike[:, 2:])
    return np.where(peak.any(1), peak.argmax(1), 0)


def refine(bands: list[Floats], middles: NDArray[np.int64], lags: Floats) -> Floats:
    """Return the lags within 4 % at which all these bands together repeat best, in samples of the oversampled wave.

    All bands have equal weight: the loud lowest band alone varies too slowly to determine a lag for the higher bands.
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
    """Return two Hann-windowed stretches of two ``spans`` each, ``lags`` apart around the middles: two [n, POINTS]."""
    offsets = np.linspace(-1, 1, POINTS)[None] * spans[:, None]
    pair = [
        wave[np.round(middles[:, None] + side * lags[:, None] / 2 + offsets).astype(np.int64).clip(0, len(wave) - 1)]
        for side in (-1, 1)
    ]
    return pair[0] * _HANN, pair[1] * _HANN


_HANN = np.hanning(POINTS)
