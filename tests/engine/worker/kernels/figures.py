"""The largest difference between each kernel and torch, of everything that a run compared: `make kernels` prints it."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

LARGEST: defaultdict[tuple[str, torch.dtype], float] = defaultdict(float)
"""Of the largest value, where that is above 1; by what was compared, and by the dtype in which it was computed."""


def differing(name: str, found: Tensor, expected: Tensor) -> float:
    """The largest difference to what is expected."""
    difference = float((found.float() - expected.float()).abs().max())
    share = difference / max(1.0, float(expected.float().abs().max()))
    LARGEST[name, found.dtype] = max(LARGEST[name, found.dtype], share)
    return difference
