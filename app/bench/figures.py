"""Figures with their bars: how they are judged and shown. Knows not how they were measured."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value; ``bar`` is the most that it may be, None where none is set. No value is a failure.

    Of a *control*, which shows that what is measured can be missed, ``bar`` is the least.
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
    """Linear between the two nearest; None of nothing."""
    return float(np.percentile(values, percent)) if values else None


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return where the median of such values lies, in 95 of 100 cases (bootstrap)."""
    drawn = np.random.default_rng(0).choice(np.array(values), (1000, len(values)))
    low, high = np.percentile(np.median(drawn, 1), [2.5, 97.5])
    return float(low), float(high)


def show(figures: Sequence[Figure], console: Console) -> None:
    """A table on the console."""
    table = Table("figure", "value", "bar", "", "note", title="parley bench")
    for figure in figures:
        bar = "" if figure.bar is None else f"{'≥' if figure.control else '≤'} {figure.bar:g} {figure.unit}"
        verdict = "[red]fails[/]" if not figure.passed else "" if figure.bar is None else "[green]holds[/]"
        table.add_row(figure.name, _value(figure), bar, verdict, figure.note)
    console.print(table)


def save(figures: Sequence[Figure], model: str, path: Path, **more: Any) -> None:
    """The same as JSON, with the machine they were measured on, and what else belongs to them."""
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    rows: list[dict[str, Any]] = [asdict(figure) | {"passed": figure.passed} for figure in figures]
    whole = {"model": model, "machine": machine, "figures": rows} | more
    path.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))


def _value(figure: Figure) -> str:
    return "missing" if figure.value is None else f"{figure.value:.3g} {figure.unit}".rstrip()
