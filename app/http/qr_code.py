"""QR codes of web addresses, as an SVG path and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import segno

Modules = Sequence[Sequence[int]]
"""A code as rows of modules: 1 is dark."""

MAX_BYTES = 134
"""Longest address in bytes. The code of a longer one has modules too small for a phone's camera."""
QUIET = 4
"""Light modules around the code."""
BLOCKS = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}


def qr_code(text: str) -> Modules:
    """Return the QR code of a text. Raises ValueError if its UTF-8 is longer than ``MAX_BYTES``."""
    size = len(text.encode())
    if size > MAX_BYTES:
        raise ValueError(f"a QR code takes at most {MAX_BYTES} bytes (got {size})")
    return segno.make_qr(text, error="l").matrix


def svg_path(code: Modules) -> str:
    """Return the dark modules as an SVG path, one unit each, within a quiet zone."""
    dark = ((x, y) for y, row in enumerate(code) for x, module in enumerate(row) if module)
    return "".join(f"M{x + QUIET} {y + QUIET}h1v1h-1z" for x, y in dark)


def terminal_lines(code: Modules) -> Iterator[str]:
    """Yield the code as lines for a terminal that prints them black on white, two rows of modules to a line."""
    width = len(code) + 2 * QUIET
    side = [0] * QUIET
    light = [[0] * width] * QUIET
    rows = [*light, *([*side, *row, *side] for row in code), *light, [0] * width]
    for upper, lower in zip(rows[: width + 1 : 2], rows[1 : width + 1 : 2], strict=True):
        yield "".join(BLOCKS[pair] for pair in zip(upper, lower, strict=True))
