"""A heart that stumbles beats on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from engine.chunk import Chunk, Text, kinds
from engine.core import Request, StageInfo
from engine.deployment.config import ChunkSpec, WorkerSpec
from engine.ipc import messages
from engine.worker.process.heartbeat import beats
from engine.worker.stage import StageConfig
from engine.worker.streamed import Streamed
from tests.engine.fakes import FakeStage, fed, opened, turns, until, working

TASK = messages.Task("worker0.0#1", (), WorkerSpec(stages=("a",)), "cpu", ChunkSpec(), 0.001)


@pytest.mark.seed("A1.5")
@pytest.mark.parametrize("broken", ["count", "send"])
async def test_a_beat_that_fails_is_missed_and_the_next_one_comes(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[messages.Message] = []
    failures = [RuntimeError("stumbled")] * 3

    def stumble() -> None:
        if failures:
            raise failures.pop()

    def send(message: messages.Message) -> None:
        if broken == "send":
            stumble()
        sent.append(message)

    async with working(FakeStage()) as desk:
        count = desk.worker.beat

        def beat(id: str) -> messages.Beat:
            if broken == "count":
                stumble()
            return count(id)

        desk.worker.beat = beat
        with caplog.at_level(logging.ERROR):
            beating = asyncio.create_task(beats(desk.worker, TASK, send))
            await until(lambda: len(sent) >= 2)
            beating.cancel()
            await asyncio.wait([beating])
    assert len([record for record in caplog.records if "sending a heartbeat failed" in record.message]) == 3


@pytest.mark.seed("A1.4")
async def test_a_beat_tells_of_steps_and_of_requests_that_wait_for_one() -> None:
    async with working(FakeStage(), max_batch=2) as desk:
        before = desk.worker.beat("w")
        assert (before.worker, before.steps, before.queues) == ("w", 0, {"a": 0})
        desk.put(opened("r"), *fed("r", 1, 2))
        await until(lambda: desk.worker.beat("w").queues == {"a": 1} or desk.worker.steps > 0)
        desk.put(messages.End("r"))
        await desk.ended("r")
        after = desk.worker.beat("w")
        assert after.steps >= 2
        assert after.queues == {"a": 0}
        assert after.step_s["a"] >= 0


@pytest.mark.parametrize("patient", [True, False])
async def test_a_request_that_a_server_thinks_about_goes_on_and_keeps_no_step_waiting(patient: bool) -> None:
    """How long it may take is the stage's own to bound; one whose answer nobody takes stands still as any other."""
    asking, gives = asyncio.Event(), asyncio.Event()

    class Thinks(Streamed):
        info = StageInfo(name="a", takes=frozenset(), emits=kinds(Text), answers=True)

        async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
            async for _ in inputs:
                pass
            asking.set()
            await gives.wait()
            yield Text("yes", 0)

    Thinks.patient = patient
    stage: Any = Thinks(StageConfig())
    async with working(stage) as desk:
        desk.put(opened("r"))
        await turns(20)
        assert desk.worker.beat("w").moving == (), "more may come"
        desk.put(messages.End("r"))
        await asking.wait()
        beat = desk.worker.beat("w")
        assert (beat.moving, beat.queues) == (("r",) if patient else (), {"a": 0})
        gives.set()
        await desk.ended("r")
        assert desk.worker.beat("w").moving == ()
