"""Series over the minutes as SVG, drawn by hand. Knows not what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDE, HIGH, EDGE, LEGEND = 800, 260, 56, 150  # pixels
COLOURS = ("#c0392b", "#2471a3", "#27ae60", "#8e44ad", "#e59866", "#7f8c8d")
TICKS = 4

Series = Sequence[tuple[float, float]]
"""Points: minute and value."""


def plot(title: str, series: Mapping[str, Series], marks: Sequence[float] = ()) -> str:
    """Return a picture of all series on one scale from 0; ``marks`` are minutes with a line of their own."""
    points = [point for one in series.values() for point in one] or [(0.0, 0.0)]
    longest, top = max(max(x for x, _ in points), 1e-9), max(max(y for _, y in points) * 1.05, 1e-9)
    right = WIDE - LEGEND

    def at(x: float, y: float) -> tuple[float, float]:
        return EDGE + (right - EDGE) * x / longest, HIGH - EDGE / 2 - (HIGH - EDGE) * y / top

    parts = [_text(EDGE, 18, title, 14)]
    for tick in range(TICKS + 1):
        (x, bottom), (_, y) = at(longest * tick / TICKS, 0), at(0, top * tick / TICKS)
        parts.append(f'<line x1="{EDGE}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts += [_text(4, y + 4, f"{top * tick / TICKS:.3g}"), _text(x, bottom + 18, f"{longest * tick / TICKS:.3g}")]
    for mark in marks:
        (x, bottom), (_, ceiling) = at(mark, 0), at(mark, top)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{ceiling:.1f}" stroke="#f5b7b1"/>')
    for number, (name, one) in enumerate(series.items()):
        colour, line = COLOURS[number % len(COLOURS)], " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in one))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(_text(right + 8, EDGE + 18 * number, name, 12, colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDE}" height="{HIGH}" fill="white"/>', *parts, "</svg>", ""])


def _text(x: float, y: float, words: str, size: int = 11, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(words)}</text>'
