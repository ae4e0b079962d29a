"""Whisper's features, compared with those of the transformers library."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from app.realtime.input.log_mel import log_mel

SAMPLES = 8 * 16_000


def sounds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(46)
    at_s = np.arange(SAMPLES) / 16_000
    noise = rng.normal(0, 0.1, SAMPLES)
    padded = np.where(at_s < 5, 0.0, noise)
    return {"noise": noise, "padded": padded, "sweep": np.sin(400 * np.pi * at_s**2), "silence": np.zeros(SAMPLES)}


@pytest.mark.parametrize("name", sounds())
def test_the_features_are_those_of_whisper(name: str) -> None:
    wave = sounds()[name].astype(np.float32)
    extract = WhisperFeatureExtractor(chunk_length=8)
    expected = extract(wave, sampling_rate=16_000, max_length=SAMPLES, do_normalize=True, return_tensors="np")
    found = log_mel(wave)
    assert found.shape == (80, 800)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.input_features[0], atol=2e-3)
