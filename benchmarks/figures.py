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
TWO_CORES = "2 CPU cores, "
IDLE = "idle"
HEAD = """\
# Figures

<!-- Generated from figures.json by `python -m benchmarks.figures`: edit the data, not this page. -->

Values in **bold** miss a bar; "–" means no bar. Figures are of nano, the built-in model, unless a row names another
one, on two CPU cores that were idle unless the run says "busy". A row without a run belongs to the run above. Load does
not change the waits of `--corpus`, which are computed from recordings. Measure your own machine with
[`make bench`](../app/bench/README.md).

In an underrun, a player without a prebuffer runs dry before the end of the sound. Ranges after a percentage are 95 %
confidence intervals.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value."""

    name: str
    value: str
    bar: str
    """The bound that the value must keep; empty if there is none."""
    machine: str
    """Machine and its load; the page omits ``TWO_CORES`` and ``IDLE``."""
    date: str
    """The day on which the value was recorded, as YYYY-MM-DD."""
    command: str
    missed: bool = False
    """Whether the value misses its bar."""

    def row(self, above: Figure | None = None) -> str:
        """Return the row of the table. It names no run if it is that of the row above."""
        value = f"**{self.value}**" if self.missed else self.value
        run = "" if above and above.run == self.run else self.run
        return f"| {self.name} | {value} | {self.bar or '–'} | {run} |"

    @property
    def run(self) -> str:
        """The command and the date, and the machine where it is not the usual one."""
        machine = self.machine.removeprefix(TWO_CORES)
        return f"`{self.command}`, {self.date}" + ("" if machine == IDLE else f", {machine}")


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
        head = "| Figure | Value | Bar | Run |\n|---|---|---|---|\n"
        rows = "".join(
            f"{figure.row(above)}\n" for above, figure in zip([None, *group.figures], group.figures, strict=False)
        )
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
