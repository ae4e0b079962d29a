"""How figures are judged: a missing one fails, and a bar is an upper bound."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from rich.console import Console

from app.bench.figures import Figure, percentile, save, show


@pytest.mark.parametrize(
    ("value", "bar", "passed"),
    [(1.0, 2.0, True), (2.0, 2.0, True), (2.1, 2.0, False), (None, 2.0, False), (None, None, False), (9.0, None, True)],
)
def test_the_verdict(value: float | None, bar: float | None, passed: bool) -> None:
    assert Figure(name="x", value=value, unit="ms", bar=bar).passed is passed


def test_percentiles() -> None:
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([], 50) is None


def test_table_and_json_say_the_same(tmp_path: Path) -> None:
    figures = [
        Figure(name="first", value=12.34, unit="ms", bar=10),
        Figure(name="second", value=None, unit="ms", note="no sound"),
    ]
    console = Console(record=True, width=120, file=(tmp_path / "table").open("w"))
    show(figures, console)
    console.file.close()
    table = console.export_text()
    assert "12.3 ms" in table
    assert "≤ 10 ms" in table
    assert table.count("fails") == 2
    assert "missing" in table

    save(figures, "script", tmp_path / "figures.json")
    saved = orjson.loads((tmp_path / "figures.json").read_bytes())
    assert saved["model"] == "script"
    assert [(row["name"], row["value"], row["passed"]) for row in saved["figures"]] == [
        ("first", 12.34, False),
        ("second", None, False),
    ]
