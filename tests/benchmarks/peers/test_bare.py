"""The bare forwards: what a first sound costs at the least, measured on stages whose steps take a known time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import structs

from benchmarks.peers import bare
from benchmarks.peers.peer import Question, Subject
from engine.deployment.registry import load

QUESTION = Question(text="Hello there.", tokens=5, frames=5)
STEP_S = 0.01


@pytest.mark.parametrize("count", [1, 5])
def test_only_steps_are_counted_and_those_who_ask_together_share_them(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thinker, talker, code2wav: three steps, however many ask."""
    steps: list[str] = []
    compute = bare.Bare._compute

    def counted(self: bare.Bare, stage: Any, at: int, lines: Any) -> None:
        steps.append(stage.info.name)
        compute(self, stage, at, lines)

    monkeypatch.setattr(bare.Bare, "_compute", counted)
    made = bare.Bare.of(Subject(model="script", weights=None, options={"step_s": STEP_S}))
    begun_s = time.perf_counter()
    times = made.answer(structs.replace(QUESTION, count=count))
    assert steps == ["thinker", "talker", "code2wav"]
    assert len(times.first_s) == count
    assert 3 * STEP_S <= min(times.first_s) <= max(times.first_s) <= time.perf_counter() - begun_s


def test_the_names_of_peers_are_files() -> None:
    assert load("benchmarks.peers", "bare", "PEER") is not None
