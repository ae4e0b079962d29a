"""How fast something grows, and how sure that is: least squares with a bound that knows that neighbours are alike.

Memory moves in steps, and a minute resembles the one before. Taken as independent, minutes would make the bound too
narrow. So the residuals' correlation with their neighbours, r, is estimated (and corrected for the bias that the fit of
a line gives it: r + (1 + 4 r) / n, Kendall 1954), and n minutes count as n (1 - r) / (1 + r) of them, both in the error
of the slope and in Student's t (Santer et al. 2000). Where fewer than three count, the bound is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Numbers = Sequence[float] | NDArray[np.float64]

LEAST = 8
"""Points below which no slope is told."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Of a series: its growth, and the upper end of the interval that holds it in 95 of 100 cases (two-sided)."""

    value: float
    bound: float
    alike: float
    """The correlation of neighbours."""
    count: int

    @property
    def note(self) -> str:
        counted = self.count * (1 - self.alike) / (1 + self.alike)
        points = f"{self.count} points that count as {counted:.0f}"
        return f"{self.value:+.2f} MB/h in {points}: neighbours' r is {self.alike:.2f}"


def slope(times: Numbers, values: Numbers) -> Slope | None:
    """Fit a line; growth is per unit of ``times``. None of fewer than LEAST points."""
    n = len(times)
    if n < LEAST:
        return None
    x, y = np.array(times) - np.mean(times), np.array(values) - np.mean(values)
    growth = float(x @ y / (x @ x))
    rest = y - growth * x
    power = float(rest @ rest)
    if power <= 1e-12 * n:
        return Slope(growth, growth, 0.0, n)
    r = float(rest[1:] @ rest[:-1]) / power
    r = min(max(r + (1 + 4 * r) / n, 0.0), 0.99)
    counted = n * (1 - r) / (1 + r)
    if counted < 3:
        return Slope(growth, math.inf, r, n)
    error = math.sqrt(power / (counted - 2) / float(x @ x))
    return Slope(growth, growth + float(student.ppf(0.975, counted - 2)) * error, r, n)
