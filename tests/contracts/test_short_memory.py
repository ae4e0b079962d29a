"""A device with too little memory for a step: who came last ends, and the others' answers are what they are alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine import Engine, EngineError, StageFailed
from engine.worker.stage_request import StageRequest
from tests.contracts.bad_stage_requests import ROUNDS, each_alone
from tests.contracts.test_bad_stage_requests import batched, stage_of, told, whole
from tests.contracts.test_resume import Got

ROOM = 3  # requests for whose step there is memory
ASKED = 6


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


class Small:
    """Has a stage's steps run out of memory for more than ROOM requests, behind their work: every state has changed."""

    def __init__(self, patch: pytest.MonkeyPatch, stage: Any) -> None:
        self.ran_out = 0
        self.largest = 0
        """How many went on together behind that."""
        sane = stage.step

        def step(self_: Any, reqs: Sequence[StageRequest]) -> Any:
            results = sane(self_, reqs)
            if len(reqs) > ROOM:
                self.ran_out += 1
                raise OutOfMemoryError("CUDA out of memory")
            self.largest = max(self.largest, len(reqs)) if self.ran_out else 0
            return results

        patch.setattr(stage, "step", step)


async def crowd(engine: Engine, small: Small) -> tuple[list[Got], list[EngineError], list[Got]]:
    """Ask until a step ran out of memory: when each is stepped depends on the machine. The answers and the errors, and
    what each is alone."""
    good = [told(f"good{number}", f"Number {number} of them all.") for number in range(ASKED)]
    alone = await each_alone(engine, whole, good, {})
    for _ in range(ROUNDS):
        found = await asyncio.gather(*(whole(engine, one) for one in good), return_exceptions=True)
        if small.ran_out:
            kept = [(one, own) for one, own in zip(found, alone, strict=True) if not isinstance(one, BaseException)]
            errors = [one for one in found if isinstance(one, EngineError)]
            return [one for one, _ in kept], errors, [own for _, own in kept]
    raise AssertionError("memory was never short: nothing is proved")


@pytest.mark.parametrize("stage", ["thinker", "talker", "code2wav"])
async def test_those_that_have_room_go_on_together_and_who_came_last_is_told(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(batched("script")) as engine:
        small = Small(monkeypatch, stage_of("script", stage))
        found, errors, alone = await crowd(engine, small)
    assert found == alone
    assert len(found) >= ROOM
    assert 1 <= len(errors) == ASKED - len(found)
    assert all(isinstance(error, StageFailed) and "was the newest request" in str(error) for error in errors)
    assert small.largest > 1, "they need not go on one by one"


async def test_an_answer_that_memory_is_short_for_again_and_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something always gives way, and it never helps."""
    monkeypatch.setattr("engine.worker.loop.memory_shortage._gave_way", lambda *_: True)
    monkeypatch.setattr("tests.contracts.test_short_memory.ROOM", 0)
    async with Engine(batched("script")) as engine:
        Small(monkeypatch, stage_of("script", "thinker"))
        with pytest.raises(StageFailed, match="ran out of memory 9 times in this answer"):
            await whole(engine, told("r", "Never."))
