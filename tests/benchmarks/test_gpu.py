"""The bench of one GPU, on tiny shapes and a CPU: it runs, and says what it says it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_steps
from engine.worker.nn import checkpoint_source, cuda_graph_runner
from engine.worker.process import stage_loader

TINY = ["--tiny", "--device", "cpu", "--slots", "4", "--context", "1024", "--frames", "4", "--concurrency", "1,4"]
Found = dict[str, list[dict[str, float]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Found]:
    """Run it in this process, which has imported torch already; what it replaces for its own is put back."""
    figures, threads = tmp_path / "figures.json", torch.get_num_threads()
    monkeypatch.setattr(gpu_steps, "REPEATS", 1)
    for owner, name in (
        (checkpoint_source, "SafetensorsCheckpoint"), (cuda_graph_runner, "WARM_S"),
        (stage_loader, "make"), (stage_loader, "device_checked"),
    ):  # fmt: skip
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
    assert list(found) == ["device", "experts", "plan", "start", "steps", "answers", "within"]
    assert {(row["users"], row["graphs"]) for row in found["answers"]} == {(1, True), (4, True), (1, False)}
    assert all(0 < row["TTFA p50 ms"] <= row["TTFA p95 ms"] for row in found["answers"])
    assert [(row["answers"], row["lost"]) for row in found["answers"]] == [(3, 0), (12, 0), (3, 0)], "three rounds"
    assert {"thinker step", "talker frame", "predictor"} <= {row["what"] for row in found["steps"]}


def test_the_settings_are_those_of_a_shipped_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's memory decides between two, and what is asked for comes first."""

    def chosen(free_gb: float, *more: str) -> list[int]:
        asked = gpu._arguments().parse_args(more)
        monkeypatch.setattr(gpu, "memory_of", lambda device: (free_gb * 1e9, free_gb * 1e9))
        gpu.settings(asked)
        assert asked.sound_dtype == "tfloat32"
        return [asked.slots, asked.context, asked.cache_tokens, asked.piece]

    assert chosen(84.9) == [24, 4096, 32768, 512]
    assert chosen(150.0) == [64, 8192, 131072, 512]
    assert chosen(84.9, "--preset", "h200") == [64, 8192, 131072, 512]
    assert chosen(150.0, "--slots", "8", "--piece", "256") == [8, 8192, 131072, 256]


def short(*_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nSee the documentation")


@pytest.mark.slow
def test_a_stage_without_memory_is_named_and_the_others_are_measured(
    run: Callable[..., Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage_loader.make
    monkeypatch.setattr(stage_loader, "make", lambda use, *more: short() if "talker" in use else made(use, *more))
    found = run()
    assert [(part, row["stage"]) for part, row in short_of_memory(found)] == [("start", "talker")]
    assert found["answers"] == [{"users": "all", "left out": "talker is not there"}]
    assert {"thinker step", "code2wav of 25"} <= {row["what"] for row in found["steps"]}


@pytest.mark.slow
def test_steps_and_answers_without_memory_are_named_and_the_others_are_measured(
    run: Callable[..., Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, crowd = gpu_steps.both_ways, gpu.crowd

    def steps(bench: Any, graphs: Any, given: Any) -> Any:
        return short() if len(given) == 4 else both(bench, graphs, given)

    def users(engine: Any, bench: Any, count: int, title: str) -> Any:
        return short() if count == 4 else crowd(engine, bench, count, title)

    monkeypatch.setattr(gpu_steps, "both_ways", steps)
    monkeypatch.setattr(gpu, "crowd", users)
    found = run()
    lacking = [(part, row.get("what") or row["users"]) for part, row in short_of_memory(found)]
    assert lacking == [("steps", "thinker step"), ("steps", "talker frame"), ("steps", "predictor"), ("answers", 4)]
    assert [row["users"] for row in found["answers"] if "TTFA p50 ms" in row] == [1, 1]


def short_of_memory(found: Found) -> list[tuple[str, dict[str, float]]]:
    """The rows that say so in one line, each with its part."""
    rows = [(part, row) for part, all_of_it in found.items() for row in all_of_it if "out of memory" in row]
    assert all(row["out of memory"] == "CUDA out of memory. Tried to allocate 2.00 GiB" for _, row in rows)
    return rows


@pytest.mark.slow
def test_what_there_is_no_time_for_is_named(run: Callable[..., Found]) -> None:
    assert all(row["left out"] == "no time" for row in run("--budget-s", "0")["answers"])
