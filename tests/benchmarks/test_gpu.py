"""The bench of one GPU, on tiny shapes and a CPU: it runs, and says what it says it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from engine.worker import host
from engine.worker.nn import cuda_graph_runner
from engine.worker.omni import source

TINY = ["--tiny", "--device", "cpu", "--slots", "4", "--context", "1024", "--frames", "4", "--concurrency", "1,4"]
Found = dict[str, list[dict[str, float]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Found]:
    """Run it in this process, which has imported torch already; what it replaces for its own is put back."""
    figures, threads = tmp_path / "figures.json", torch.get_num_threads()
    for owner, name in ((source, "Checkpoint"), (host, "make"), (cuda_graph_runner, "WARM_S")):
        monkeypatch.setattr(owner, name, getattr(owner, name))

    def ran(*more: str) -> Found:
        monkeypatch.setattr("sys.argv", ["gpu", *TINY, "--json", str(figures), *more])
        try:
            gpu.main()
        finally:
            torch.set_num_threads(threads)
        assert "kept" not in capsys.readouterr().out, "a bar is for the true shapes"
        return json.loads(figures.read_text())

    return ran


@pytest.mark.slow
def test_it_measures_every_part(run: Callable[..., Found]) -> None:
    found = run()
    assert list(found) == ["device", "experts", "start", "steps", "answers"]
    assert {(row["users"], row["graphs"]) for row in found["answers"]} == {(1, True), (4, True), (1, False)}
    assert all(0 < row["TTFA p50 ms"] <= row["TTFA p95 ms"] for row in found["answers"])
    assert {"thinker step", "talker frame", "predictor"} <= {row["what"] for row in found["steps"]}


@pytest.mark.slow
def test_what_there_is_no_time_for_is_named(run: Callable[..., Found]) -> None:
    assert all(row["left out"] == "no time" for row in run("--budget-s", "0")["answers"])
