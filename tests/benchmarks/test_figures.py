"""FIGURES.md is what figures.json gives, in short cells, and its commands exist."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks.figures import DATA, PAGE, Figure, page, read
from tests.test_blocks import known

ROOT = DATA.parent.parent
FIGURES = [figure for group in read() for figure in group.figures]
MOST_WORDS = 15


def test_the_page_is_what_the_data_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read()), "run python -m benchmarks.figures"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_short_and_its_command_exists(figure: Figure) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", figure.date)
    for cell in (figure.name, figure.value, figure.bar, figure.machine):
        assert len([word for word in cell.split() if re.search(r"\w", word)]) <= MOST_WORDS
    assert known(figure.command.split()) is not False
    assert [path for path in re.findall(r"tests/[\w/]+\.py", figure.command) if not (ROOT / path).is_file()] == []


def test_a_value_that_misses_its_bar_is_bold() -> None:
    figure = Figure(name="a", value="2", bar="≤ 1", machine="H200", date="2026-11-27", command="make x", missed=True)
    assert figure.row() == "| a | **2** | ≤ 1 | `make x`, 2026-11-27, H200 |"


def test_a_row_leaves_out_the_run_of_the_row_above() -> None:
    first = Figure(name="a", value="2", bar="", machine="2 CPU cores, idle", date="2026-11-27", command="make x")
    assert first.row() == "| a | 2 | – | `make x`, 2026-11-27 |"
    assert first.row(first) == "| a | 2 | – |  |"
    assert replace(first, machine="2 CPU cores, busy").row(first) == "| a | 2 | – | `make x`, 2026-11-27, busy |"


def test_the_readme_s_figures_are_those_of_the_data() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Figures")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| `([^`]+)` \|$", section, re.MULTILINE)
    assert len(rows) == 4
    known_figures = [(figure.value, figure.command) for figure in FIGURES]
    assert not [
        row for row in rows if not any(row[0] in value and row[1] == command for value, command in known_figures)
    ]


def test_a_figure_stands_nowhere_else_in_the_readme() -> None:
    prose = re.sub(
        r"```.*?```|^\|.*$", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    assert re.findall(r"\d+(?:\.\d+)? (?:ms|s|%)\b", prose) == []
