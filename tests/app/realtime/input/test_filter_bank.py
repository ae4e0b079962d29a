"""The filter bank of speaker embeddings, against Kaldi's."""

from __future__ import annotations

import numpy as np
import pytest

from app.realtime.input.filter_bank import BANDS, filter_bank

# Of kaldi-native-fbank 1.23, without dither, minus the mean of each band: bands 0, 20, 40, 60, 79 at frames 0, 11, 22.
KALDI = [[0.62, -1.57, -0.84], [-2.61, -0.37, -2.58], [-0.47, -0.02, 0.28], [0.51, 0.02, -0.24], [-0.71, 0.27, -0.05]]


def test_it_is_that_of_kaldi() -> None:
    at_s = np.arange(4000) / 16_000
    chirp = 0.3 * np.sin(2 * np.pi * (300 * at_s + 2000 * at_s**2))
    wave = (0.1 * np.random.default_rng(1).normal(size=4000) + chirp + 0.05).astype(np.float32)
    bands = filter_bank(wave)
    assert bands.shape == (BANDS, 23)
    assert bands[[0, 20, 40, 60, 79]][:, [0, 11, 22]] == pytest.approx(np.array(KALDI), abs=0.02)


def test_silence_is_finite() -> None:
    assert np.isfinite(filter_bank(np.zeros(4000, np.float32))).all()
