"""Outlines of shapes, and the perspective view of a flat object held at an angle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


def stretched(points: Points, corners: Points) -> Points:
    """Map points [n, 2] of the unit square into the quadrilateral ``corners`` [4, 2]."""
    x, y = points[:, :1], points[:, 1:]
    top = corners[0] * (1 - x) + corners[1] * x
    bottom = corners[3] * (1 - x) + corners[2] * x
    return top * (1 - y) + bottom * y


def perspective(corners: Points, size: tuple[int, int]) -> list[float]:
    """Return Pillow's eight perspective coefficients that map the quadrilateral to a picture of this size."""
    wide, high = size
    rows, wanted = list[list[float]](), list[float]()
    for (x, y), (u, v) in zip(corners, ((0, 0), (wide, 0), (wide, high), (0, high)), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        wanted += [u, v]
    return np.linalg.solve(np.array(rows), np.array(wanted)).tolist()


def _round(points: Sequence[tuple[float, float]]) -> Points:
    """Scale and move points around 0 so that they fill the unit square."""
    array = np.array(points, np.float64)
    return (array - array.min(0)) / np.ptp(array, axis=0)


def _turned(count: int, radii: Sequence[float]) -> Points:
    angles = [math.tau * i / count - math.pi / 2 for i in range(count)]
    far = [radii[i % len(radii)] for i in range(count)]
    return _round([(r * math.cos(a), r * math.sin(a)) for r, a in zip(far, angles, strict=True)])


_BOX = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)
OUTLINES = {
    "circle": _turned(40, [1.0]),
    "square": _BOX,
    "triangle": np.array([[0.5, 0], [1, 1], [0, 1]]),
    "star": _turned(10, [1.0, 0.42]),
    "cross": _round([(1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (2, 2), (2, 3), (1, 3), (1, 2), (0, 2), (0, 1), (1, 1)]),
    "rectangle": _BOX,
    "heart": _round([
        (16 * math.sin(t) ** 3, -13 * math.cos(t) + 5 * math.cos(2 * t) + 2 * math.cos(3 * t) + math.cos(4 * t))
        for t in np.linspace(0, math.tau, 36, endpoint=False)
    ]),
}  # fmt: skip
"""Outlines [n, 2] that fill the unit square."""
