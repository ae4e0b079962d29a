"""Transitions run between two stages of the engine, in one worker and across two: the payloads stay what they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine import Engine, EngineSpec, Message, Request, TextPart, WorkerSpec
from engine.chunk import Text
from engine.core import IN_WRITING
from engine.deployment.config import StageSpec
from tests.contracts.transition_stages import EXCHANGES, Exchange, chunk_of, written

STAGES = Path(__file__).parent / "transition_stages.py"
PIPELINE = (StageSpec(use=f"{STAGES}:Producer", name="producer"), StageSpec(use=f"{STAGES}:Consumer", name="consumer"))
TOGETHER = (WorkerSpec(stages=("producer", "consumer")),)
APART = (WorkerSpec(stages=("producer",)), WorkerSpec(stages=("consumer",)))


def payloads(exchange: Exchange) -> list[str]:
    """The payloads that a transition gives without any engine."""
    transition = exchange.make()
    given = [*(one for step in exchange.steps for one in transition.add(chunk_of(step))), transition.end()]
    return [written(payload) for payload in given]


async def answered(engine: Engine, name: str) -> list[str]:
    request = Request(id=name, session=name, messages=(Message("user", (TextPart(name),)),), wants=IN_WRITING)
    async with engine.open(request) as chunks:
        return [chunk.text async for chunk in chunks if isinstance(chunk, Text)]


@pytest.mark.seed("A2.5", "A2.14", "A2.15", "A2.18")
@pytest.mark.parametrize("workers", [TOGETHER, APART], ids=["together", "apart"])
async def test_payloads_pass_between_two_stages_as_the_transition_gives_them(workers: tuple[WorkerSpec, ...]) -> None:
    """All at once, so that requests of different lengths interleave, and one of them has nothing to say."""
    async with Engine(EngineSpec(stages=PIPELINE, workers=workers, launcher="local")) as engine:
        answers = await asyncio.gather(*(answered(engine, name) for name in EXCHANGES))
    for (name, exchange), answer in zip(EXCHANGES.items(), answers, strict=True):
        assert answer == payloads(exchange), name
