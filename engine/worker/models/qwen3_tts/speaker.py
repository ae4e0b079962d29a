"""Speaker encoder: a recording to a speaker embedding.

Source: Qwen3TTSSpeakerEncoder of qwen-tts 0.1.1, with its mel spectrogram.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.ecapa import Ecapa
from engine.worker.nn.mel import mel_filters
from engine.worker.nn.weights import WeightReader

RATE_HZ, FFT, HOP = 24_000, 1024, 256


class SpeakerEmbedder:
    """Mel spectrogram and ECAPA network."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        self._mel = mel_filters(config.mel_dim, FFT, RATE_HZ).contiguous()
        self._network = Ecapa(read, config)

    def __call__(self, wave: Tensor) -> Tensor:
        """Return the speaker embedding [width] of a recording [samples] at 24 kHz."""
        return self._network(log_mel(wave, self._mel))[0]


def log_mel(wave: Tensor, filters: Tensor) -> Tensor:
    """Return the log mel spectrogram [1, mels, frames] of a recording [samples]."""
    padded = F.pad(wave[None], ((FFT - HOP) // 2,) * 2, mode="reflect")
    spectrum = torch.stft(padded, FFT, HOP, FFT, torch.hann_window(FFT), center=False, return_complex=True)
    magnitude = (torch.view_as_real(spectrum).pow(2).sum(-1) + 1e-9).sqrt()
    return (filters @ magnitude).clamp(1e-5).log()
