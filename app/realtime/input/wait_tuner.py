"""Adapts the silence that ends a turn to the pauses of one speaker, so that a given share of turns is cut early."""

from __future__ import annotations

import math
from statistics import NormalDist

SHORTEST = 0.5
LONGEST = 2.5
"""Bounds of the factor by which the end-of-turn model's waits are multiplied."""

_PRIOR_MEAN = 1.0
_PRIOR_SPREAD = 5.0
"""Numbers of pauses that the prior counts as: its mean, and its spread. The factor begins at 1."""
_SPREAD = 0.35
"""Standard deviation of the logarithm of pauses in the prior. Pauses within turns are about log-normal."""
_KEPT = 0.98
"""Weight that earlier pauses keep with each new one, since speakers change: about 50 of them count."""


class WaitTuner:
    """Tunes the waits of one session. ``target`` is the share of turns that may end early, such as 0.02.

    Each pause within a turn counts, whether the user resumed before the end of the wait or was cut. Its length is
    divided by the untuned wait at that moment, because the end-of-turn model waits longer where it expects longer
    pauses. The factor is the quantile of a log-normal distribution of these ratios that leaves ``target`` of the turns.
    """

    def __init__(self, target: float) -> None:
        self.target = target
        self._turns = 1.0
        self._pauses = 1.0
        self._count = 0.0
        self._mean = 0.0  # of the logarithms of ratios
        self._squares = 0.0  # sum of the squared distances from the mean

    @property
    def factor(self) -> float:
        """Return the factor for the end-of-turn model's waits, from SHORTEST to LONGEST."""
        per_turn = max(1.0, self._pauses / self._turns)
        first = -_z(self.target) * _SPREAD * math.sqrt(1 + 1 / _PRIOR_SPREAD)
        mean = (_PRIOR_MEAN * first + self._count * self._mean) / (_PRIOR_MEAN + self._count)
        known = _PRIOR_SPREAD + self._count
        spread = math.sqrt((_PRIOR_SPREAD * _SPREAD**2 + self._squares) / known * (1 + 1 / known))
        return min(LONGEST, max(SHORTEST, math.exp(mean + _z(self.target / per_turn) * spread)))

    def add_turn(self) -> None:
        """Count a turn. One that was cut and the one that continues it are one turn."""
        self._turns = _KEPT * self._turns + 1
        self._pauses *= _KEPT

    def add_pause(self, pause_ms: float, wait_ms: float) -> None:
        """Learn from a pause within a turn. ``wait_ms`` is the untuned wait that applied to it."""
        if pause_ms <= 0 or wait_ms <= 0:
            return
        ratio = math.log(pause_ms / wait_ms)
        self._pauses += 1
        before = _KEPT * self._count
        self._count = before + 1
        distance = ratio - self._mean
        self._mean += distance / self._count
        self._squares = _KEPT * self._squares + distance**2 * before / self._count


def _z(share: float) -> float:
    """Return how many standard deviations above the mean that share of a normal distribution begins."""
    return NormalDist().inv_cdf(1 - share)
