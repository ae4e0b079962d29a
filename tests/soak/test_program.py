"""The long soak as its user runs it: started in the background, stopped, and gone on with to its end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from tests.soak import journal, keeper
from tests.soak.verdict import minutes_of_load

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0
Line = TypeVar("Line")


def soak(command: str, folder: Path, minutes: float) -> subprocess.CompletedProcess[str]:
    words = ["--minutes", f"{minutes:.3f}", "--users", "2", "--callers", "1", "--settled", "0", "--kill-every", "8"]
    program = [sys.executable, "-m", "tests.soak", command, str(folder), *words]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)


def lines(folder: Path, kind: type[Line]) -> list[Line]:
    return [one for one in journal.read(folder / "journal.jsonl") if isinstance(one, kind)]


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_S)
def test_it_outlives_a_stop_and_goes_on_where_it_was(tmp_path: Path) -> None:
    assert "in the background" in soak("start", tmp_path, 60).stdout
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not (lines(tmp_path, journal.Answer) and lines(tmp_path, journal.Look)):
            assert time.monotonic() < until_s, (tmp_path / "log").read_text()
            time.sleep(0.2)
        pid = keeper.running_in(tmp_path)
        assert pid is not None
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        assert "is running" in soak("start", tmp_path, 60).stdout
    finally:
        soak("stop", tmp_path, 60)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == [], "the server, its workers and the users end with it"
    assert keeper.running_in(tmp_path) is None
    done_min = minutes_of_load(journal.read(tmp_path / "journal.jsonl"))
    before = len(lines(tmp_path, journal.Answer))
    result = soak("run", tmp_path, done_min + 0.4)
    assert result.returncode == 1, "so short a soak holds no slope of memory"
    assert {one.life for one in lines(tmp_path, journal.Started)} == {0, 1}
    assert len(lines(tmp_path, journal.Answer)) > before
    assert [one.note.partition(",")[0] for one in lines(tmp_path, journal.Fault) if one.kind == "kill"]
    assert {(one.life, one.when) for one in lines(tmp_path, journal.Rest)} >= {(1, "base"), (1, "end")}
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "2 users at once; 2 starts" in report
    assert "growth of memory" in report
    assert (tmp_path / "memory.svg").stat().st_size > 1000
