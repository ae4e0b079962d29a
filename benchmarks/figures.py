"""Write benchmarks/FIGURES.md from benchmarks/figures.json, the one place where figures are edited.

    python -m benchmarks.figures [--check]

``--check`` changes nothing and exits with 1 if the page is not what the data give.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "figures.json"
PAGE = FOLDER / "FIGURES.md"
HEAD = """\
# Figures

<!-- Generated from figures.json by `python -m benchmarks.figures`: edit the data, not this page. -->

Each row has the measured value, its bar, and the command that prints it. Values in **bold** miss their bar. "–" means
that there is no bar. The date is the day on which the value was recorded.

Figures are of nano, the built-in model, unless a row names another. An underrun is a moment in which a player without
a prebuffer runs dry while sound is still to come. Measure your own machine with `make bench`;
[Benchmark](../app/bench/README.md) explains what it prints.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value."""

    name: str
    value: str
    bar: str
    """The bound that the value must keep; empty if there is none."""
    machine: str
    date: str
    """The day on which the value was recorded, as YYYY-MM-DD."""
    command: str
    missed: bool = False
    """Whether the value misses its bar."""

    def row(self) -> str:
        """Return the row of the table."""
        value = f"**{self.value}**" if self.missed else self.value
        return f"| {self.name} | {value} | {self.bar or '–'} | {self.machine} | {self.date} | `{self.command}` |"


@dataclass(frozen=True, slots=True)
class Group:
    """The figures under one heading."""

    title: str
    figures: Sequence[Figure]


def read(path: Path = DATA) -> list[Group]:
    """Read the data file. Raises TypeError for a missing or unknown field."""
    groups = json.loads(path.read_text(encoding="utf-8"))
    return [Group(one["title"], [Figure(**figure) for figure in one["figures"]]) for one in groups]


def page(groups: Sequence[Group]) -> str:
    """Return the Markdown page."""
    parts = [HEAD]
    for group in groups:
        head = "| Figure | Value | Bar | Machine | Date | Command |\n|---|---|---|---|---|---|\n"
        rows = "".join(f"{figure.row()}\n" for figure in group.figures)
        parts.append(f"## {group.title}\n\n{head}{rows}")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    expected = page(read())
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != expected)
    PAGE.write_text(expected, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
