"""Draws the next token from logits: greedy, or with temperature and top-p and counter-based randomness."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.core import Sampling
from engine.worker.randomness import uniform

STREAM = 0
"""Random stream of the draws; nothing else in nano is random."""


def draw(logits: NDArray[np.float32], sampling: Sampling, step: int, temperature: float, top_p: float) -> int:
    """Return the next token from ``logits`` [vocabulary], which are -inf for forbidden tokens.

    ``temperature`` and ``top_p`` are defaults for values that the request leaves open. The result depends only on the
    logits, the seed and the step, not on the rest of the batch.
    """
    heat = temperature if sampling.temperature is None else sampling.temperature
    if sampling.greedy or heat <= 0:
        return int(logits.argmax())
    weights = np.exp((logits - logits.max()).astype(np.float64) / heat)
    order = np.argsort(-weights)
    total = np.cumsum(weights[order]) / weights.sum()
    kept = int(np.searchsorted(total, top_p if sampling.top_p is None else sampling.top_p)) + 1
    point = uniform(sampling.seed, STREAM, step)
    return int(order[np.searchsorted(total[:kept], point * total[:kept][-1])])
