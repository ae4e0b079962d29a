"""Image preprocessing for nano's vision: downscaling by area, statistics, crops. numpy only.

Statistics, not a network, determine the brightness and whether a picture is legible.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Small = NDArray[np.float32]
SIDE = 256
"""Longer side, in pixels, of a small picture."""
LEAST = 16
"""Minimum side, in pixels, of a legible picture."""
TAPS = 3
"""Samples per direction in each block that becomes one pixel."""
STATISTICS = 11
LIGHT, DIM, BLACK = 0.5, 0.2, 0.04
"""Minimum brightness (99th percentile) of a light, a dim and a dark picture; below that it is black."""
LIFTED = 0.9
"""Brightness to which the brightest parts of darker pictures are scaled."""
WHITE, EVEN = 0.99, 0.004
"""A picture is overexposed if its mean is above WHITE and its deviation below EVEN."""
RUGGED, ROUGH = 0.12, 0.6
"""Deviation, and share of it between neighbouring pixels, above which a picture is only noise."""


def name(pixels: Pixels) -> bytes:
    """Return a hash of a picture's content; large pictures are subsampled."""
    step = max(1, max(pixels.shape, default=0) // (2 * SIDE))
    read = pixels[::step, ::step] if pixels.ndim > 1 else pixels
    return hashlib.blake2b(repr(pixels.shape).encode() + read.tobytes(), digest_size=16).digest()


def small(pixels: Pixels) -> Small:
    """Return the picture scaled to float32 [h, w, 3] in [0, 1]: longer side SIDE, the other one proportional and
    even.
    """
    blocks = _blocks(pixels, max(pixels.shape[:2]) // SIDE)
    height, width = blocks.shape[:2]
    scale = SIDE / max(height, width)
    high, wide = (max(2, round(side * scale / 2) * 2) for side in (height, width))
    return made(blocks / np.float32(255), areas(height, 0, height, high), areas(width, 0, width, wide))


def _blocks(pixels: Pixels, side: int) -> Small:
    """Return the mean of each block of side x side pixels, from at most TAPS x TAPS samples."""
    if side < 2:
        return pixels.astype(np.float32)
    high, wide = pixels.shape[0] // side, pixels.shape[1] // side
    if not (high and wide):  # a very narrow picture
        return pixels[:: max(1, pixels.shape[0] // SIDE), :: max(1, pixels.shape[1] // SIDE)].astype(np.float32)
    taps = [side * (2 * tap + 1) // (2 * min(side, TAPS)) for tap in range(min(side, TAPS))]
    whole = pixels[: high * side, : wide * side]
    total = np.zeros((high, wide, 3), np.uint16)
    for y in taps:
        for x in taps:
            total += whole[y::side, x::side]
    return np.divide(total, len(taps) ** 2, dtype=np.float32)


def made(picture: Small, rows: Small, columns: Small) -> Small:
    """Resample a picture [h, w, 3] with weights of rows [high, h] and columns [wide, w] to float32 [high, wide, 3]."""
    (high, height), (wide, width) = rows.shape, columns.shape
    lines = (rows @ picture.reshape(height, width * 3)).reshape(high, width, 3)
    flat = lines.transpose(0, 2, 1).reshape(high * 3, width) @ columns.T
    return np.ascontiguousarray(flat.reshape(high, 3, wide).transpose(0, 2, 1), np.float32)


def areas(size: int, start: float, end: float, count: int) -> Small:
    """Return weights [count, size] that resample the range ``start`` to ``end`` to ``count`` pixels by covered area.

    Positions outside of the picture repeat its edge.
    """
    return _areas(size, round(start, 2), round(end, 2), count)


@lru_cache(maxsize=64)
def _areas(size: int, start: float, end: float, count: int) -> Small:
    edges = np.linspace(start, end, count + 1)[:, None]
    if (end - start) / count < 1:  # upscaling: linear interpolation
        middles = np.clip((edges[:-1] + edges[1:]) / 2 - 0.5, 0, size - 1)
        return np.maximum(0, 1 - np.abs(middles - np.arange(size))).astype(np.float32)
    walls = np.arange(size + 1, dtype=np.float64)
    walls[0], walls[-1] = min(0, start), max(size, end)
    inside = np.clip(edges, walls[:-1], walls[1:]) - walls[:-1]
    return (np.diff(inside, axis=0) * count / (end - start)).astype(np.float32)


def cut(picture: Small, x: float, y: float, side: float, count: int) -> Small:
    """Return the square around (x, y), in pixels of the picture, as float32 [count, count, 3]."""
    top, left = max(0, int(y - side / 2)), max(0, int(x - side / 2))
    near = picture[top : max(top + 1, int(y + side / 2) + 2), left : max(left + 1, int(x + side / 2) + 2)]
    if not near.size:
        near, top, left = picture, 0, 0
    high, wide = near.shape[:2]
    rows = areas(high, y - side / 2 - top, y + side / 2 - top, count)
    return made(near, rows, areas(wide, x - side / 2 - left, x + side / 2 - left, count))


def square(picture: Small) -> tuple[Small, int, int]:
    """Centre a small picture in a gray square, float32 [SIDE, SIDE, 3]. Returns the square and the picture's top and
    left.
    """
    height, width = picture.shape[:2]
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    around = np.full((SIDE, SIDE, 3), 0.5, np.float32)
    around[top : top + height, left : left + width] = picture
    return around, top, left


def halved(picture: Small) -> Small:
    """Return the picture at half size; each pixel is the mean of four."""
    lines = picture[::2] + picture[1::2]
    return ((lines[:, ::2] + lines[:, 1::2]) / 4).astype(np.float32, copy=False)


def brightest(picture: Small) -> float:
    """Return the 99th percentile of the brightness in [0, 1]."""
    return float(np.quantile(picture[::2, ::2].max(2), 0.99))


def light(brightness: float) -> str:
    return "light" if brightness >= LIGHT else "dim" if brightness >= DIM else "dark"


def lifted(picture: Small, brightness: float) -> Small:
    """Return a dim or dark picture brightened, as by a longer exposure."""
    return picture if brightness >= LIGHT else np.minimum(picture * np.float32(LIFTED / brightness), 1)


def statistics(picture: Small, brightness: float) -> Small:
    """Return colour statistics of the whole picture, float32 [STATISTICS], an extra input of the networks."""
    points = picture[::4, ::4].reshape(-1, 3)
    value = np.quantile(points.max(1), [0.02, 0.25, 0.5, 0.75, 0.98])
    values = [*value, *np.median(points, axis=0), (np.ptp(points, axis=1)).mean(), picture.std(), brightness]
    return np.array(values, np.float32)


def empty(pixels: Pixels, picture: Small, brightness: float) -> bool:
    """Return whether nothing can be recognized: ``pixels`` is too small, black, overexposed, or only noise.

    ``picture`` is the same picture after ``small``.
    """
    if min(pixels.shape[:2]) < LEAST or brightness < BLACK:
        return True
    if picture.mean() > WHITE and picture.std() < EVEN:
        return True
    top, left = (max(0, (side - SIDE) // 2) for side in pixels.shape[:2])
    middle = pixels[top : top + SIDE, left : left + SIDE, 1].astype(np.float32) / np.float32(255)
    rough = float(np.square(np.diff(middle, axis=1)).mean()) / 2
    return float(middle.std()) > RUGGED and rough > ROUGH * float(middle.var())
