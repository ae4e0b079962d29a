"""The bare forwards: what a first sound costs at the least, measured on stages whose steps take a known time."""

from __future__ import annotations

import pytest
from msgspec import structs

from engine.bench import bare
from engine.bench.peer import Question, Subject
from engine.registry import load

QUESTION = Question(text="Hello there.", tokens=5, frames=5)
STEP_S = 0.01


@pytest.mark.parametrize("count", [1, 5])
def test_only_steps_are_counted_and_those_who_ask_together_share_them(count: int) -> None:
    """Thinker, talker, code2wav: three steps, however many ask."""
    made = bare.Bare.of(Subject(model="script", weights=None, options={"step_s": STEP_S}))
    times = made.answer(structs.replace(QUESTION, count=count))
    assert len(times.first_s) == count
    assert 3 * STEP_S <= min(times.first_s) <= max(times.first_s) <= 3.9 * STEP_S


def test_the_names_of_peers_are_files() -> None:
    assert load("engine.bench", "bare", "PEER") is not None
