"""A heart that stumbles beats on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from engine import wire
from engine.config import ChunkSpec, WorkerSpec
from engine.worker.heartbeat import beats
from tests.engine.fakes import FakeStage, fed, opened, until, working

TASK = wire.Task("worker0.0#1", (), WorkerSpec(stages=("a",)), "cpu", ChunkSpec(), 0.001)


@pytest.mark.seed("A1.5")
@pytest.mark.parametrize("broken", ["count", "send"])
async def test_a_beat_that_fails_is_missed_and_the_next_one_comes(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[wire.Message] = []
    failures = [RuntimeError("stumbled")] * 3

    def stumble() -> None:
        if failures:
            raise failures.pop()

    def send(message: wire.Message) -> None:
        if broken == "send":
            stumble()
        sent.append(message)

    async with working(FakeStage()) as desk:
        count = desk.worker.beat

        def beat(id: str) -> wire.Beat:
            if broken == "count":
                stumble()
            return count(id)

        desk.worker.beat = beat
        with caplog.at_level(logging.ERROR):
            beating = asyncio.create_task(beats(desk.worker, TASK, send))
            await until(lambda: len(sent) >= 2)
            beating.cancel()
            await asyncio.wait([beating])
    assert len([record for record in caplog.records if "heartbeat failed" in record.message]) == 3


@pytest.mark.seed("A1.4")
async def test_a_beat_tells_of_steps_and_of_requests_that_wait_for_one() -> None:
    async with working(FakeStage(), max_batch=2) as desk:
        before = desk.worker.beat("w")
        assert (before.worker, before.steps, before.queues) == ("w", 0, {"a": 0})
        desk.put(opened("r"), *fed("r", 1, 2))
        await until(lambda: desk.worker.beat("w").queues == {"a": 1} or desk.worker.steps > 0)
        desk.put(wire.End("r"))
        await desk.ended("r")
        after = desk.worker.beat("w")
        assert after.steps >= 2
        assert after.queues == {"a": 0}
        assert after.step_s["a"] >= 0
