"""A curve as SVG, drawn by hand: first audio against how many ask at once. Knows not how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

WIDE, HIGH, EDGE = 640, 400, 56  # pixels
LINES = (
    ("p95_s", "p95, all at once", "#c0392b"),
    ("p50_s", "p50, all at once", "#2471a3"),
    ("open_p95_s", "p95, at random", "#e59866"),
    ("open_p50_s", "p50, at random", "#85c1e9"),
    ("ideal_p95_s", "p95, bare forwards, one batch", "#bdc3c7"),
    ("ideal_s", "p50, bare forwards, one batch", "#7f8c8d"),
)
TICKS = 5


class Point(Protocol):
    """First audio of ``count`` at once, in seconds."""

    @property
    def count(self) -> int: ...

    @property
    def p50_s(self) -> float: ...

    @property
    def p95_s(self) -> float: ...

    @property
    def ideal_s(self) -> float: ...

    @property
    def ideal_p95_s(self) -> float: ...

    @property
    def open_p50_s(self) -> float: ...

    @property
    def open_p95_s(self) -> float: ...


def draw(curve: Sequence[Point], title: str, path: Path) -> None:
    """Write the picture: each count has the same distance from the next, milliseconds go up from 0."""
    top = max(max(point.p95_s, point.open_p95_s, point.ideal_p95_s) for point in curve) * 1e3
    columns = [EDGE + (WIDE - 2 * EDGE) * i / max(1, len(curve) - 1) for i in range(len(curve))]

    def height(ms: float) -> float:
        return HIGH - EDGE - (HIGH - 2 * EDGE) * ms / top

    parts = [
        _text(WIDE / 2, 24, title, "middle", 16),
        _text(WIDE / 2, HIGH - 12, "answers asked for at once, or listened to on average", "middle"),
    ]
    for x, point in zip(columns, curve, strict=True):
        parts.append(_text(x, HIGH - EDGE + 20, str(point.count), "middle"))
    for i in range(TICKS + 1):
        y = height(top * i / TICKS)
        parts.append(f'<line x1="{EDGE}" x2="{WIDE - EDGE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(EDGE - 6, y + 4, f"{top * i / TICKS:.0f} ms", "end"))
    for i, (field, name, colour) in enumerate(LINES):
        spots = [(x, height(getattr(point, field) * 1e3)) for x, point in zip(columns, curve, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        parts.append(_text(EDGE + 12, EDGE + 8 + 18 * i, name, "start", 13, colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif">'
    paper = f'<rect width="{WIDE}" height="{HIGH}" fill="white"/>'
    path.write_text("\n".join([head, paper, *parts, "</svg>", ""]), encoding="utf-8")


def _text(x: float, y: float, words: str, anchor: str, size: int = 12, colour: str = "#333") -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{words}</text>'
