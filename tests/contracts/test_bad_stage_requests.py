"""One user's bad request ends their own answer, and changes nobody else's, whatever stage it breaks and however."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import AudioPart, Engine, EngineSpec, Message, Request, StageFailed, TextPart
from engine.chunk import ToolCall
from engine.core import IN_WRITING, ToolDefinition
from engine.worker.uses import stage_type
from tests.contracts.bad_stage_requests import BAD, Breaking, Moment, one_among_good, random_among_good
from tests.contracts.test_resume import CHAIN, Got, read, spec
from tests.engine.fakes import only

STAGES = ["ears", "thinker", "talker", "code2wav"]
BROKEN: list[tuple[str, Moment]] = [("script", "before"), ("script", "after"), ("nano", "after"), (CHAIN, "after")]
SECOND = (3000 * np.sin(np.arange(16_000) / 9)).astype(np.int16)
ALONE: defaultdict[tuple[str, bool], dict[str, Got]] = defaultdict(dict)
"""What good requests are answered alone, by the model and whether they are spoken."""


def stage_of(model: str, name: str) -> Any:
    if model == CHAIN:
        return stage_type("llm.chain" if name == "thinker" else f"nano.{name}")
    return stage_type(f"{model}.{name}")


def told(id: str, text: str, **fields: Any) -> Request:
    return Request(id=id, session=id, messages=(Message("user", (TextPart(f"say: {text}"),)),), **fields)


def spoken(id: str, length: int) -> Request:
    pcm = SECOND[: 8000 + 320 * length]
    return Request(id=id, session=id, messages=(Message("user", (AudioPart(pcm),)),))


def asked(stage: str, number: int, id: str = "") -> Request:
    """A request that passes through a stage for several steps."""
    if stage == "ears":
        return spoken(id or f"good{number}", number)
    return told(id or f"good{number}", f"Number {number}.")


async def whole(engine: Engine, request: Request) -> Got:
    asyncio.get_running_loop().set_debug(False)  # its stack traces would take most of the time
    return await read(engine, request)


def batched(model: str) -> EngineSpec:
    """One worker that steps eight together."""
    one = spec(model, "together", replicas=1)
    return replace(one, workers=tuple(replace(worker, max_batch=8) for worker in one.workers))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("model", "moment"), BROKEN)
async def test_a_step_that_breaks_costs_only_who_broke_it(
    model: str, stage: str, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    nth = random.Random(f"{model} {stage} {moment}").randint(1, 2)
    good = [asked(stage, number) for number in range(7 if model == "script" else 3)]
    async with Engine(batched(model)) as engine:
        breaking = Breaking(monkeypatch, stage_of(model, stage), moment, nth)
        await breaking.one_among_good(engine, whole, good, asked(stage, 3, BAD), ALONE[model, stage == "ears"])


async def test_without_going_on_alone_others_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr("engine.worker.loop.step.BatchLost", StageFailed)
    good = [asked("thinker", number) for number in range(7)]
    async with Engine(batched("script")) as engine:
        Breaking(monkeypatch, stage_of("script", "thinker"), "before", 2)
        with pytest.raises(AssertionError, match="was lost"):
            await one_among_good(engine, whole, good, asked("thinker", 3, BAD))


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("script", 15),
        ("nano", 5),
        pytest.param("script", 1000, marks=pytest.mark.soak),
        pytest.param("nano", 1000, marks=pytest.mark.soak),
    ],
)
async def test_random_bad_requests_change_no_good_answer(model: str, count: int) -> None:
    good = [told(f"good{number}", f"Number {number}.") for number in range(3 if count == 5 else 7)]
    async with Engine(batched(model)) as engine:
        assert await random_among_good(engine, whole, good, count) >= len(good)


@pytest.mark.parametrize("bound", [None, "soon", [], {}, True, 10**30])
async def test_a_tools_limit_that_is_no_number_is_no_limit(bound: Any) -> None:
    """It raised within the step of all: eight other users' answers failed with it."""
    schema = {"type": "object", "properties": {"seconds": {"type": "integer", "minimum": bound}}}
    asked = Request(
        id="r", session="s", messages=(Message("user", (TextPart("Set a timer for ten minutes."),)),),
        tools=(ToolDefinition("set_timer", "", schema),), wants=IN_WRITING,
    )  # fmt: skip
    async with Engine(batched("nano")) as engine:
        got = await whole(engine, asked)
    assert bool(only(ToolCall, got.others)) == (bound != 10**30)
