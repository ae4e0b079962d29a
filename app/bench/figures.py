"""Figures with their targets: how they are judged, shown and saved."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from app.commands import terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value. ``bar`` is its maximum, or None without one. A missing value is a failure.

    A *control* shows that the measurement can fail; its ``bar`` is a minimum.
    """

    name: str
    value: float | None
    unit: str
    bar: float | None = None
    note: str = ""
    control: bool = False

    @property
    def passed(self) -> bool:
        if self.value is None or self.bar is None:
            return self.value is not None
        return self.value >= self.bar if self.control else self.value <= self.bar


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile, interpolated linearly; None without values."""
    return float(np.percentile(values, percent)) if values else None


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median (bootstrap)."""
    drawn = np.random.default_rng(0).choice(np.array(values), (1000, len(values)))
    low, high = np.percentile(np.median(drawn, 1), [2.5, 97.5])
    return float(low), float(high)


def report(figures: Sequence[Figure], model: str, json_path: Path | None, **more: Any) -> bool:
    """Print the figures, save them to a file if named, and return whether every target was met."""
    show(figures, Console(emoji=False))
    if json_path is not None:
        save(figures, model, json_path, **more)
        terminal.say(f"figures saved to {json_path}")
    return all(figure.passed for figure in figures)


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print a table of the figures."""
    table = Table("figure", "value", "bar", "", "note")
    for figure in figures:
        bar = "" if figure.bar is None else f"{'≥' if figure.control else '≤'} {figure.bar:g} {figure.unit}"
        verdict = "[red]fails[/]" if not figure.passed else "" if figure.bar is None else "[green]holds[/]"
        table.add_row(figure.name, _value(figure), bar, verdict, figure.note)
    console.print(table)


def save(figures: Sequence[Figure], model: str, path: Path, **more: Any) -> None:
    """Write the figures as JSON, with a description of the machine and the keys in ``more``."""
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    rows: list[dict[str, Any]] = [asdict(figure) | {"passed": figure.passed} for figure in figures]
    whole = {"model": model, "machine": machine, "figures": rows} | more
    path.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))


def _value(figure: Figure) -> str:
    return "missing" if figure.value is None else f"{figure.value:.3g} {figure.unit}".rstrip()
