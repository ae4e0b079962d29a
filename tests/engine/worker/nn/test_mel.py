"""The filters of the mel scale, held against transformers' own."""

from __future__ import annotations

import pytest
import torch
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from engine.worker.nn.mel import mel_filters


@pytest.mark.parametrize(("count", "fft", "rate_hz"), [(128, 400, 16_000), (80, 400, 16_000), (128, 1024, 24_000)])
def test_filters_have_the_bits_of_the_reference(count: int, fft: int, rate_hz: int) -> None:
    found = mel_filters(count, fft, rate_hz)
    theirs = mel_filter_bank(fft // 2 + 1, count, 0.0, rate_hz / 2, rate_hz, norm="slaney", mel_scale="slaney")
    assert torch.equal(found, torch.from_numpy(theirs).float().T)
    assert found.shape == (count, fft // 2 + 1)


def test_filters_are_those_of_the_extractor() -> None:
    extractor = WhisperFeatureExtractor(feature_size=128)
    assert torch.equal(mel_filters(128, 400, 16_000), torch.from_numpy(extractor.mel_filters).float().T)
