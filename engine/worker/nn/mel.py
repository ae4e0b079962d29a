"""Triangular mel filters as in Slaney's Auditory Toolbox (1998)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

KNEE_HZ, KNEE_MEL = 1000.0, 15.0
"""The mel scale is linear below this point and logarithmic above."""
LOG_STEP = float(np.log(6.4)) / 27.0


def mel_filters(count: int, fft: int, rate_hz: int) -> Tensor:
    """Return float32 filters [count, frequencies] of equal area, up to half the sample rate.

    They equal transformers' ``mel_filter_bank(norm="slaney", mel_scale="slaney")`` to the bit.
    """
    highest = KNEE_MEL + np.log(rate_hz / 2 / KNEE_HZ) * (27.0 / np.log(6.4))
    mels = np.linspace(0.0, highest, count + 2)
    corners = np.where(mels < KNEE_MEL, 200.0 * mels / 3.0, KNEE_HZ * np.exp(LOG_STEP * (mels - KNEE_MEL)))
    distances = corners - np.linspace(0, rate_hz // 2, fft // 2 + 1)[:, None]
    widths = np.diff(corners)
    rising, falling = -distances[:, :-2] / widths[:-1], distances[:, 2:] / widths[1:]
    filters = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (corners[2:] - corners[:-2]))
    return torch.from_numpy(filters).float().T
