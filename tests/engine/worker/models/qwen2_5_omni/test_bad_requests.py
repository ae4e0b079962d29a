"""Qwen2.5-Omni: a bad request among good ones ends alone, and random ones change none of those."""

from __future__ import annotations

import asyncio

import pytest

from engine import ContextOverflow, Engine
from engine.worker.uses import stage_type
from tests.contracts.bad_stage_requests import BAD, Breaking, Moment, random_among_good
from tests.engine.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, request, spec
from tests.engine.worker.models.qwen3_omni.test_bad_stage_requests import whole
from tests.oracles.talk import ask

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("stage", ["thinker", "talker", "code2wav"])
async def test_a_step_that_breaks_costs_only_who_broke_it(
    stage: str, moment: Moment, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [request(f"good{number}", PROMPTS["text"], 4, 5) for number in range(3)]
    async with Engine(spec(checkpoint("plain"), slots=8)) as engine:
        breaking = Breaking(monkeypatch, stage_type(f"qwen2_5_omni.{stage}"), moment, 2)
        await breaking.one_among_good(engine, whole, good, request(BAD, PROMPTS["text"], 4, 5))


@pytest.mark.parametrize("shared", [None, 512])
async def test_a_text_that_is_longer_than_the_context_is_one_error(shared: int | None, checkpoint: Folder) -> None:
    """Its rows would be a neighbour's."""
    text = "Hello there. " * 100
    async with Engine(spec(checkpoint("plain"), slots=2, context=256, cache_tokens=shared)) as engine:
        alone = await ask(engine, request("alone", PROMPTS["text"], 4, 5))
        good = asyncio.create_task(ask(engine, request("good", PROMPTS["text"], 4, 5)))
        with pytest.raises(ContextOverflow, match="has room for"):
            await ask(engine, request("long", PROMPTS["text"][:1], 4, 5, say=text))
        assert (await good).ids == alone.ids


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.soak)])
async def test_random_bad_requests_change_no_good_answer(count: int, checkpoint: Folder) -> None:
    good = [request(f"good{number}", PROMPTS["text"], 3, 3) for number in range(7 if count > 100 else 2)]
    async with Engine(spec(checkpoint("plain"), slots=8)) as engine:
        assert await random_among_good(engine, whole, good, count) >= 2
