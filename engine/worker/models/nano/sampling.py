"""Draw the next token from logits: greedy, or by temperature and top-p with counter-based randomness.

It knows no model: which tokens may be drawn, and the defaults, are the caller's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.core import Sampling
from engine.worker.randomness import uniform

STREAM = 0
"""Its stream of randomness: nothing else in nano draws."""


def draw(logits: NDArray[np.float32], sampling: Sampling, step: int, temperature: float, top_p: float) -> int:
    """The next id from ``logits`` [vocabulary], -inf where one must not be drawn.

    ``temperature`` and ``top_p`` hold where the request leaves them open. The same seed and step draw alike, whatever
    else is in the batch.
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
