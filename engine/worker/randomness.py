"""Counter-based random numbers: each number depends only on its counters, not on numbers drawn before.

So a request draws the same numbers whatever its batch contains, wherever it runs, and after a resume. The algorithm is
SplitMix64 (Steele et al. 2014), on whole arrays. ``nn/sampling_params.py`` computes the same numbers on a device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
"""The step between two counters: 2^64 divided by the golden ratio."""
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
BITS = 24
"""Bits of a uniform number: as many as float32 represents, so that every device computes the same number."""


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return each number with its bits mixed by SplitMix64's finaliser."""
    for shift, factor in zip((30, 27), MIX, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def uniform(seed: int, stream: int, step: int, codebook: int = 0) -> float:
    """Return a number in [0, 1) for four counters. ``stream`` separates independent consumers."""
    state = np.zeros(1, np.uint64)
    for counter in (seed + GOLDEN * (stream + 1), GOLDEN * (step + 1), GOLDEN * (codebook + 1)):
        state = mixed(state + np.uint64(counter % 2**64))
    return float(state[0] >> np.uint64(64 - BITS)) / (1 << BITS)
