"""Features of the teacher's speech: log-mel, log F0 and voicing every 10 ms.

All functions process one utterance at 16 kHz.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

RATE_HZ = 16000
HOP = 160  # 10 ms
FRAME = 4 * HOP  # 40 ms, one codec frame
MELS = 80
FFT = 1024
LEAD_S = 0.02  # silence before the first phone
MIN_LOG_MEL = -4.5  # lower values are inaudible and would waste code words
MEAN_LOG_F0 = 4.7  # about 110 Hz, this voice


@dataclass(frozen=True, slots=True)
class Speech:
    """One utterance with LEAD_S of leading silence, padded to whole codec frames.

    wave: int16 [T * 640]; mel: float32 [4 T, 80] natural log; log_f0: float32 [4 T], interpolated where unvoiced;
    voiced: float32 [4 T] in 0..1; cut_s: seconds removed at the start.
    """

    wave: Tensor
    mel: Tensor
    log_f0: Tensor
    voiced: Tensor
    cut_s: float


def load(directory: Path, name: str, onset_s: float, gain: float = 1.0) -> Speech:
    """Read the teacher's `name`.s16 and `name`.f0, scaled by `gain`; the first phone that is not a pause starts at
    onset_s.
    """
    wave = np.fromfile(directory / f"{name}.s16", "<i2")
    if gain != 1:
        wave = (wave * gain).round().clip(-32768, 32767).astype("<i2")
    f0_hz = np.fromfile(directory / f"{name}.f0", "<f4")
    cut = max(0, round((onset_s - LEAD_S) / 0.005)) * 80  # whole F0 frames of 5 ms
    wave, f0_hz = wave[cut:], f0_hz[cut // 80 :]
    samples = math.ceil(len(wave) / FRAME) * FRAME
    wave = torch.from_numpy(np.pad(wave, (0, samples - len(wave))))
    log_f0, voiced = pitch(f0_hz, samples // HOP)
    mel = log_mel(wave.float() / 32768).clamp(min=MIN_LOG_MEL)
    return Speech(wave, mel, log_f0, voiced, cut / RATE_HZ)


def pitch(f0_hz: np.ndarray, frames: int) -> tuple[Tensor, Tensor]:
    """Convert 5 ms values in Hz (0 where unvoiced) to log F0 without gaps and the share of voicing, every 10 ms."""
    voiced = f0_hz > 50
    index = np.arange(len(f0_hz))
    log_f0 = np.full(len(f0_hz), MEAN_LOG_F0)
    if voiced.any():
        log_f0 = np.interp(index, index[voiced], np.log(f0_hz[voiced]))
    at = (np.arange(frames) + 0.5) * 2
    out = np.interp(at, index, log_f0), np.interp(at, index, voiced.astype(np.float32))
    return torch.from_numpy(out[0].astype(np.float32)), torch.from_numpy(out[1].astype(np.float32))


def log_mel(wave: Tensor) -> Tensor:
    """Convert [..., n * 160] samples in -1..1 to [..., n, 80]; frame i is centred on sample 160 i + 80, window 40
    ms.
    """
    frames = F.pad(wave, (240, 240)).unfold(-1, 640, HOP) * torch.hann_window(640)
    return torch.log((torch.fft.rfft(frames, FFT).abs() @ _FILTERS.T).clamp(min=1e-3))


def mel_scale(hz: Tensor) -> Tensor:
    return 2595 * torch.log10(1 + hz / 700)


def mel_centres() -> Tensor:
    """Return the band centres on the mel scale, [80]."""
    low, high = mel_scale(torch.tensor([40.0, 7900.0]))
    return torch.linspace(float(low), float(high), MELS + 2)[1:-1]


def _filters() -> Tensor:
    low, high = mel_scale(torch.tensor([40.0, 7900.0]))
    edges = 700 * (10 ** (torch.linspace(float(low), float(high), MELS + 2) / 2595) - 1)
    bins = torch.linspace(0, RATE_HZ / 2, FFT // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    weights = torch.minimum(rising, falling).clamp(min=0)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-5)


_FILTERS = _filters()
