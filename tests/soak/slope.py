"""How fast something grows, and how sure that is: a line with a bound that knows that neighbours are alike.

Memory moves in steps, and a minute resembles the one before. Taken as independent, minutes would make the bound too
narrow. So the residuals are an AR(1) process: each is ``r`` times its neighbour and something new. Nobody knows r, and
an estimate of it from a few points is poor. So the line is fitted by generalised least squares (Prais and Winsten 1954)
for every r from 0 to nearly 1, each r weighs as much as the series speaks for it (the restricted likelihood of
Patterson and Thompson 1971), and the bound is that of the mixture of Student's distributions. Of 20 points without any
growth its upper end lies above 0 in 100, 98, 95 and 91 of 100 cases with an r of 0, .6, .8 and .95; least squares with
a corrected number of points (Santer et al. 2000), which was here before, came to 99, 95, 94 and 90. Its bound was two
thirds as wide for an r of 0, as wide for .6, 1.4 times as wide for .8, and 2.3 times for .95.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import t as student

Numbers = Sequence[float] | NDArray[np.float64]
Floats = NDArray[np.floating[Any]]

LEAST = 8
"""Points below which no slope is told."""
ALIKE = np.linspace(0.0, 0.999, 60)
"""The correlations of neighbours that are considered."""
EVENNESS = 1e-6
"""Of the values: what moves less than that does not move."""


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
        return f"{self.value:+.2f} MB/h in {self.count} points: neighbours' r is {self.alike:.2f}"


def slope(times: Numbers, values: Numbers) -> Slope | None:
    """Fit a line to points at even distances; growth is per unit of ``times``. None of fewer than LEAST points."""
    n = len(times)
    if n < LEAST:
        return None
    x, y = np.array(times) - np.mean(times), np.array(values) - np.mean(values)
    if np.abs(y).max() <= EVENNESS * max(1.0, float(np.abs(values).max())):
        return Slope(0.0, 0.0, 0.0, n)
    fits = np.array([_fitted(x, y, r) for r in ALIKE])
    growths, errors, likelihoods = fits.T
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()

    def beyond(bound: float) -> float:
        return float(weights @ student.cdf((bound - growths) / errors, n - 2)) - 0.975

    reach = 100 * float(errors.max())
    bound = brentq(beyond, float(growths.min()) - reach, float(growths.max()) + reach)
    return Slope(float(weights @ growths), float(cast(Any, bound)), float(weights @ ALIKE), n)


def _fitted(x: Floats, y: Floats, r: float) -> tuple[float, float, float]:
    """The growth, its standard error, and the logarithm of the restricted likelihood, where neighbours correlate so."""
    first = np.sqrt(1 - r * r)
    columns = np.stack([_whitened(np.ones(len(x)), r, first), _whitened(x, r, first)], 1)
    target = _whitened(y, r, first)
    products = columns.T @ columns
    fit = np.linalg.solve(products, columns.T @ target)
    rest = target - columns @ fit
    power, free = max(float(rest @ rest), 1e-12), len(x) - 2
    error = np.sqrt(power / free * np.linalg.inv(products)[1, 1])
    likelihood = -free / 2 * np.log(power) + np.log(first) - np.log(np.linalg.det(products)) / 2
    return float(fit[1]), float(error), float(likelihood)


def _whitened(series: Floats, r: float, first: float) -> Floats:
    """What is new in each point: independent, and of one spread."""
    return np.concatenate([first * series[:1], series[1:] - r * series[:-1]])
