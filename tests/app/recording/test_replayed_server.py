"""In a replay, waits end at their recorded times, whatever the machine's speed."""

from __future__ import annotations

import asyncio
import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from app.recording.replayed_server import LATE_S, ReplayedInference, ReplayedLateness, ReplayedWaits
from app.recording.taps import part_names
from app.recording.virtual_loop import VirtualLoop
from tests.app.recording.test_virtual_loop import run


def waits_of(loop: VirtualLoop, ends_s: dict[str, float]) -> ReplayedWaits:
    return ReplayedWaits(ends_s, loop, part_names())


def test_a_wait_ends_at_its_recorded_time() -> None:
    async def work(loop: VirtualLoop) -> list[float]:
        ended: list[float] = []
        waits = waits_of(loop, {"0.1": 2.0, "0.3": 3.0, "1.1": 5.0})
        assert await waits.result(asyncio.to_thread(time.sleep, 0.01)) is None
        ended.append(loop.time())
        await waits.result(asyncio.sleep(0))  # not recorded: nothing else happened meanwhile
        ended.append(loop.time())
        await waits.alarm(asyncio.Event(), 0.5)
        ended.append(loop.time())
        await waits.part().moment()
        return [*ended, loop.time()]

    assert run(work, VirtualLoop()) == [2.0, 2.0, 3.0, 5.0]


def test_the_end_of_a_task_is_reported_at_its_recorded_time() -> None:
    async def work(loop: VirtualLoop) -> float:
        reported = asyncio.Event()
        waits_of(loop, {"0.end": 2.0}).ended(reported.set)
        await reported.wait()
        return loop.time()

    assert run(work, VirtualLoop()) == 2.0


def test_a_timer_that_the_recording_lacks_comes_late() -> None:
    async def work(loop: VirtualLoop) -> float:
        await waits_of(loop, {}).alarm(asyncio.Event(), 0.5)
        return loop.time()

    assert run(work, VirtualLoop()) == 0.5 + LATE_S


def test_the_lead_changes_at_the_recorded_reading() -> None:
    lateness = ReplayedLateness({2: 0.02, 4: 0.0})
    assert [lateness.ahead_s(0.0) for _ in range(5)] == [0.0, 0.02, 0.02, 0.0, 0.0]


def test_an_end_of_turn_model_that_gave_no_result_gives_none() -> None:
    """It was too slow, or the session ended first."""
    model: Any = SimpleNamespace(listen=lambda _: 0.9)

    async def work(loop: VirtualLoop) -> list[bool]:
        inference = ReplayedInference({1: math.inf, 2: 3.0}, loop)
        judged = [inference.submit(model, np.zeros(0, np.int16)) for _ in range(3)]
        await asyncio.sleep(60)
        return [one.done() for one in judged]

    assert run(work, VirtualLoop()) == [False, True, True]
