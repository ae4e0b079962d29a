"""Qwen3-Omni: a bad request among seven good ones ends alone, whatever stage breaks, in a step of all or of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine import Engine, Request
from engine.errors import BatchLost
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.stage_request import StageRequest
from tests.contracts.bad_stage_requests import (
    BAD,
    SECRET,
    Breaking,
    Moment,
    is_bad,
    one_among_good,
    plain,
    random_among_good,
)
from tests.engine.worker.models.qwen3_omni.cases import PICTURE, PROMPTS, SHORT, Folder
from tests.oracles.talk import Said, ask, request, spec

SAME = 1e-4
STAGES = {"thinker": Thinker, "talker": Talker, "code2wav": Code2Wav}
OWN = [
    (Thinker, "_begin"), (Thinker, "_took"), (Thinker, "_take"),
    (Thinker, "_encode"), (Talker, "prefill"), (Talker, "_next_text"),
    (Talker, "_frame"),
]  # fmt: skip
"""What a stage does for one request alone."""


@dataclass(slots=True)
class Got:
    """An answer that can be compared."""

    said: Said

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Got)
        one, two = self.said, other.said
        words = (one.ids, one.codes.tolist(), one.finish) == (two.ids, two.codes.tolist(), two.finish)
        return words and one.wave.shape == two.wave.shape and np.abs(one.wave - two.wave).max(initial=0) < SAME


async def whole(engine: Engine, asked: Request) -> Got:
    asyncio.get_running_loop().set_debug(False)
    return Got(await ask(engine, asked))


def asked(id: str, number: int) -> Request:
    """Words, some with a picture or a sound: what a batch is made of in earnest."""
    extra = [(), (PICTURE,), (SHORT,)][number % 3]
    return request(id, [("user", [f"Number {number}", *extra])], 4, 5)


GOOD = [asked(f"good{number}", number) for number in range(7)]
ALONE: dict[str, Got] = {}
"""What those are answered alone."""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
async def test_a_step_that_breaks_costs_only_who_broke_it(
    stage: str, moment: Moment, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(spec(checkpoint("plain"), slots=8)) as engine:
        breaking = Breaking(monkeypatch, STAGES[stage], moment, 2)
        await breaking.one_among_good(engine, whole, GOOD, asked(BAD, 1), ALONE)


@pytest.mark.parametrize(("stage", "name"), OWN)
async def test_what_is_done_for_one_alone_breaks_no_step(
    stage: Any, name: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else even begins again."""
    sane, steps = getattr(stage, name), stage.step

    def broken(self: Any, first: Any, *more: Any) -> Any:
        reqs: list[StageRequest] = first if isinstance(first, list) else [first]
        if any(map(is_bad, reqs)):
            raise ZeroDivisionError(SECRET)
        return sane(self, first, *more)

    def whole_step(self: Any, reqs: Any) -> Any:
        try:
            return steps(self, reqs)
        except Exception as error:
            raise AssertionError("the step broke") from error

    async with Engine(spec(checkpoint("plain"), slots=8)) as engine:
        monkeypatch.setattr(stage, name, broken)
        monkeypatch.setattr(stage, "step", whole_step)
        lost: list[str] = []

        class Noted(BatchLost):
            def __init__(self, why: str) -> None:
                super().__init__(why)
                lost.append(why)

        monkeypatch.setattr("engine.worker.loop.step.BatchLost", Noted)
        plain(await one_among_good(engine, whole, GOOD, asked(BAD, 1), ALONE))
    assert not lost


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.soak)])
async def test_random_bad_requests_change_no_good_answer(count: int, checkpoint: Folder) -> None:
    good = [request(f"good{number}", PROMPTS["text"], 3, 3) for number in range(7 if count > 100 else 2)]
    async with Engine(spec(checkpoint("plain"), slots=8)) as engine:
        assert await random_among_good(engine, whole, good, count) >= 2
