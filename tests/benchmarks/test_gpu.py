"""The bench of one GPU, on tiny shapes and a CPU: it runs, and says what it says it does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--tiny", "--device", "cpu", "--slots", "4", "--context", "1024", "--frames", "4", "--concurrency", "1,4"]


def run(tmp_path: Path, *more: str) -> tuple[dict[str, list[dict[str, float]]], str]:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.gpu", *TINY, "--json", str(figures), *more]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stderr
    return json.loads(figures.read_text()), ended.stdout


@pytest.mark.slow
def test_it_measures_every_part(tmp_path: Path) -> None:
    found, printed = run(tmp_path)
    assert list(found) == ["device", "experts", "start", "steps", "answers"]
    assert {(row["users"], row["graphs"]) for row in found["answers"]} == {(1, True), (4, True), (1, False)}
    assert all(0 < row["TTFA p50 ms"] <= row["TTFA p95 ms"] for row in found["answers"])
    assert {"thinker step", "talker frame", "predictor"} <= {row["what"] for row in found["steps"]}
    assert "kept" not in printed, "a bar is for the true shapes"


@pytest.mark.slow
def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "--budget-s", "0")
    assert all(row["left out"] == "no time" for row in found["answers"])
