"""Backgrounds of drawn scenes: walls and tables for training, and others that only the tests use.

A surface is a brightness field, float32 [H, W] around 1, that multiplies its colour; clutter is drawn on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Field = NDArray[np.float32]
Surface = Callable[[Generator, int, int], Field]
Rgb = tuple[int, int, int]


def surface(rng: Generator, height: int, width: int, held_out: bool) -> Field:
    """Return a random surface; those of the tests never occur in training."""
    kinds = HELD_OUT if held_out else LEARNED
    return kinds[rng.integers(len(kinds))](rng, height, width)


def clutter(rng: Generator, picture: Image.Image, colour: Rgb, held_out: bool) -> None:
    """Draw distractors: lines and blobs in training, cables and confetti in tests."""
    draw = ImageDraw.Draw(picture)
    kinds = (_cable, _confetti, _frame) if held_out else (_line, _blob, _beside)
    for _ in range(rng.integers(1, 4)):
        kinds[rng.integers(len(kinds))](rng, draw, picture.size, colour)


def noise(rng: Generator, height: int, width: int, cells: int) -> Field:
    """Return smooth noise in [0, 1]: random values on a grid with ``cells`` columns, interpolated."""
    grid = Image.fromarray(rng.random((max(2, cells * height // width), cells), np.float32))
    return np.clip(np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC)), 0, 1)


def _flat(rng: Generator, height: int, width: int) -> Field:
    return np.ones((height, width), np.float32)


def _gradient(rng: Generator, height: int, width: int) -> Field:
    return 1 + rng.uniform(0.05, 0.3) * (_across(rng, height, width) - 0.5)


def _cloudy(rng: Generator, height: int, width: int) -> Field:
    return 1 + rng.uniform(0.08, 0.3) * (noise(rng, height, width, int(rng.integers(3, 24))) - 0.5)


def _grainy(rng: Generator, height: int, width: int) -> Field:
    return 1 + rng.uniform(0.05, 0.25) * (noise(rng, height, width, width // int(rng.integers(2, 5))) - 0.5)


def _striped(rng: Generator, height: int, width: int) -> Field:
    waves = np.sin(_across(rng, height, width) * rng.uniform(20, 120))
    return (1 + rng.uniform(0.03, 0.1) * np.sign(waves)).astype(np.float32)


def _tiled(rng: Generator, height: int, width: int) -> Field:
    """Return tiles of two shades with grout."""
    side = int(rng.integers(18, 48))
    y, x = np.mgrid[:height, :width]
    shade = 1 + rng.uniform(0.02, 0.08) * ((x // side + y // side) % 2)
    return np.where((x % side < 2) | (y % side < 2), shade * rng.uniform(0.75, 0.9), shade).astype(np.float32)


def _bricks(rng: Generator, height: int, width: int) -> Field:
    high, wide = int(rng.integers(12, 22)), int(rng.integers(28, 48))
    y, x = np.mgrid[:height, :width]
    row = y // high
    x = x + (row % 2) * wide // 2
    shades = rng.uniform(0.9, 1.08, (height // high + 1, width // wide + 2))
    joint = (y % high < 2) | (x % wide < 2)
    return np.where(joint, rng.uniform(0.75, 0.9), shades[row, x // wide]).astype(np.float32)


def _grained(rng: Generator, height: int, width: int) -> Field:
    """Wood: rings of a trunk, cut slantwise."""
    y, x = np.mgrid[:height, :width] / np.float32(width)
    warp = noise(rng, height, width, 5)
    rings = np.sin((y * rng.uniform(30, 70) + x * rng.uniform(0, 6) + warp * rng.uniform(4, 9)) * 2)
    return (1 + rng.uniform(0.04, 0.12) * rings).astype(np.float32)


def _woven(rng: Generator, height: int, width: int) -> Field:
    period = rng.uniform(3, 7)
    y, x = np.mgrid[:height, :width].astype(np.float32) * np.float32(math.tau / period)
    return 1 + np.float32(rng.uniform(0.04, 0.12)) * np.sin(x) * np.sin(y)


LEARNED: tuple[Surface, ...] = (_flat, _flat, _gradient, _cloudy, _grainy, _striped)
HELD_OUT: tuple[Surface, ...] = (_tiled, _bricks, _grained, _woven)


def _across(rng: Generator, height: int, width: int) -> Field:
    """0 at one side of the picture, 1 at the other, in any direction."""
    angle = rng.uniform(0, math.tau)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    slope = x * math.cos(angle) + y * math.sin(angle)
    return ((slope - slope.min()) / (np.ptp(slope) + 1e-6)).astype(np.float32)


def shade(colour: Rgb, by: float) -> Rgb:
    return tuple(int(np.clip(c * by, 0, 255)) for c in colour)  # type: ignore[return-value]


def any_colour(rng: Generator) -> Rgb:
    return tuple(int(c) for c in rng.integers(0, 256, 3))  # type: ignore[return-value]


def _ink(rng: Generator, colour: Rgb) -> Rgb:
    """A shade of the surface, mostly."""
    return shade(colour, rng.uniform(0.6, 1.3)) if rng.random() < 0.6 else any_colour(rng)


def _point(rng: Generator, size: tuple[int, int]) -> tuple[float, float]:
    return rng.uniform(0, size[0]), rng.uniform(0, size[1])


def _line(rng: Generator, draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Rgb) -> None:
    draw.line([_point(rng, size), _point(rng, size)], _ink(rng, colour), int(rng.integers(1, max(2, size[0] // 60))))


def _blob(rng: Generator, draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Rgb) -> None:
    """A patch without a name, in a shade of the surface."""
    (x, y), radius = _point(rng, size), size[0] * rng.uniform(0.04, 0.25)
    turns = np.sort(rng.uniform(0, math.tau, int(rng.integers(7, 14))))
    far = radius * rng.uniform(0.3, 1.0, len(turns))
    outline = [(x + r * math.cos(a), y + r * math.sin(a)) for a, r in zip(turns, far, strict=True)]
    draw.polygon(outline, shade(colour, rng.uniform(0.75, 1.2)))


def _beside(rng: Generator, draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Rgb) -> None:
    """Draw something large that is half outside of the picture, like a person, a shelf or a hand."""
    width, height = size
    at_a_side = rng.random() < 0.5
    x, y = (rng.choice([0, width]), rng.uniform(0, height)) if at_a_side else (rng.uniform(0, width), height)
    wide, high = width * rng.uniform(0.05, 0.14), height * rng.uniform(0.06, 0.3)
    kind = draw.rectangle if rng.random() < 0.4 else draw.ellipse
    kind((x - wide, y - high, x + wide, y + high), any_colour(rng))


def _cable(rng: Generator, draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Rgb) -> None:
    t = np.linspace(0, 1, 24)[:, None]
    a, b, c, d = (np.array(_point(rng, size)) for _ in range(4))
    curve = a * (1 - t) ** 3 + 3 * b * t * (1 - t) ** 2 + 3 * c * t**2 * (1 - t) + d * t**3
    draw.line([tuple(point) for point in curve], _ink(rng, colour), int(rng.integers(2, max(3, size[0] // 60))))


def _confetti(rng: Generator, draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Rgb) -> None:
    side = size[0] / 150
    for _ in range(int(rng.integers(10, 50))):
        x, y = _point(rng, size)
        draw.rectangle((x, y, x + side * rng.uniform(0.5, 2), y + side * rng.uniform(0.5, 2)), _ink(rng, colour))


def _frame(rng: Generator, draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Rgb) -> None:
    """Draw the edge of a window or monitor along one side of the picture."""
    width, height = size
    deep = rng.uniform(0.03, 0.1)
    left, right = (0, 0, width * deep, height), (width * (1 - deep), 0, width, height)
    sides = (left, right, (0, height * (1 - deep), width, height))
    draw.rectangle(sides[rng.integers(3)], _ink(rng, colour))
