"""benchmarks.duplex: what it counts, and what it serves."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import duplex
from engine import Engine

CONFIG = str(Path(__file__).parents[2] / "configs" / "script_duplex.yaml")


def test_the_overhead_is_counted_for_each_frame() -> None:
    assert 0 < duplex.overhead_us(2, 1.0) < 1e6


@pytest.mark.parametrize(("step_s", "late"), [(0.01, False), (0.2, True)])
def test_on_a_simulated_processor_a_long_step_makes_frames_late(step_s: float, late: bool) -> None:
    clock = duplex.OwnProcessor()
    counts, _ = asyncio.run(duplex.simulated(duplex.Silent(3, clock, step_s), clock, 4.0))
    assert counts.frames + counts.skipped > 130
    assert bool(counts.late and counts.skipped) == late


async def test_the_simulated_step_is_measured_and_the_frames_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex, "SETTLED_S", 0.3)
    asked = argparse.Namespace(config=CONFIG, step_ms=1.0, each_ms=0.5, sessions=(1, 4))
    spec = duplex.deployment(asked)
    assert spec.stages[0].options == {"step_s": 0.001, "request_s": 0.0005}
    assert spec.workers[0].max_batch == 4
    beats = replace(spec.heartbeat, interval_s=0.05)
    async with Engine(replace(spec, launcher="inline", heartbeat=beats)) as engine:
        counts, step_ms = await duplex.converse(engine, 1, 0.2)
    assert counts.frames > 0
    assert step_ms >= 1
