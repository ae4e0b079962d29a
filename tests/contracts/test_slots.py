"""Who speaks holds the ears, and nothing behind them: those who wait for answers meanwhile are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import numpy as np
import pytest

from engine import ANSWER, Engine, EngineSpec, Message, Request, TextPart, WorkerSpec
from engine.chunk import Speech, Text, Usage
from engine.deployment.config import StageSpec
from tests.contracts.test_resume import LAYOUTS
from tests.engine.fakes import only, until

USERS = 16


def spec(layout: str) -> EngineSpec:
    workers = tuple(WorkerSpec(stages=stages, max_batch=USERS) for stages in LAYOUTS[layout])
    return EngineSpec(model="script", workers=workers, launcher="inline")


async def speaking(over: asyncio.Event) -> AsyncGenerator[Speech]:
    """A turn that goes on until its user is silent."""
    for _ in range(50):
        yield Speech(np.zeros(320, np.int16))
    await over.wait()


async def answered(engine: Engine, id: str) -> str:
    request = Request(id=id, session=id, messages=(Message("user", (TextPart("say: yes"),)),), wants=ANSWER)
    async with engine.open(request) as chunks:
        got = [chunk async for chunk in chunks]
    assert only(Usage, got)
    return "".join(text.text for text in only(Text, got))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_while_all_speak_those_who_wait_are_answered(layout: str) -> None:
    over = asyncio.Event()
    async with Engine(spec(layout)) as engine, AsyncExitStack() as turns:
        live = [
            await turns.enter_async_context(
                engine.open(Request(id=f"l{n}", session=f"l{n}", messages=(), live=True), speaking(over))
            )
            for n in range(USERS)
        ]
        await until(lambda: engine.stats()["ears"]["leased"] == USERS)
        assert [engine.stats()[stage]["leased"] for stage in ("thinker", "talker", "code2wav")] == [0, 0, 0]
        async with asyncio.timeout(30):
            said = await asyncio.gather(*(answered(engine, f"t{n}") for n in range(USERS)))
            assert said == ["yes"] * USERS
            over.set()  # and then those who spoke
            heard = [[chunk async for chunk in chunks] for chunks in live]
        assert all(text.endswith("seconds.") for text in ("".join(t.text for t in only(Text, got)) for got in heard))


@pytest.mark.parametrize("launcher", ["inline", "local"])
async def test_a_stage_may_take_fewer_at_once_than_its_worker(launcher: str) -> None:
    """A thinker that is short of memory, say: the others' batches stay as large as they were."""
    names = ("ears", "thinker", "talker", "code2wav")
    stages = tuple(
        StageSpec(use=f"script.{name}", name=name, max_batch=2 if name == "thinker" else None) for name in names
    )
    workers = (WorkerSpec(stages=names, max_batch=8),)
    async with Engine(EngineSpec(stages=stages, workers=workers, launcher=launcher)) as engine:
        slots = engine.slots(Request(id="r", session="s", messages=(), live=True))
        assert slots == {"ears": 8, "thinker": 2, "talker": 8, "code2wav": 8}
        assert await asyncio.gather(*(answered(engine, f"t{n}") for n in range(6))) == ["yes"] * 6
