"""Counter-based randomness: a number follows from what it is for, and from nothing that was drawn before.

So a request draws the same whatever else is in its batch, wherever it runs and wherever it is resumed. The numbers are
SplitMix64's (Steele et al. 2014), on whole arrays; ``nn/sampling_params.py`` makes the same ones on a device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
"""The step between two counters: 2^64 over the golden ratio."""
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
BITS = 24
"""Bits of a uniform number: as many as float32 holds, so that every device makes the same."""


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Well-mixed bits of each number."""
    for shift, factor in zip((30, 27), MIX, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def uniform(seed: int, stream: int, step: int, codebook: int = 0) -> float:
    """Return a number in [0, 1) for four counters; ``stream`` tells apart who draws."""
    state = np.zeros(1, np.uint64)
    for counter in (seed + GOLDEN * (stream + 1), GOLDEN * (step + 1), GOLDEN * (codebook + 1)):
        state = mixed(state + np.uint64(counter % 2**64))
    return float(state[0] >> np.uint64(64 - BITS)) / (1 << BITS)
