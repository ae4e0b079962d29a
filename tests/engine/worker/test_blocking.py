"""A blocking stage is stepped in a thread: the loop goes on, and leaves the requests of that step alone."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from engine.ipc import messages
from engine.worker.loop.step import DEADLINE_S
from engine.worker.loop.step_thread import StepThread
from engine.worker.stage_request import StageRequest
from tests.engine.control.test_orchestrator import numbers
from tests.engine.fakes import (
    Desk,
    FakeStage,
    Result,
    data_of,
    echo,
    fed,
    opened,
    request,
    rigged,
    turns,
    until,
    working,
)

PATIENCE_S = 20.0
"""For a test that fails: nothing waits so long in one that passes."""


class Held(FakeStage):
    """A native call, which returns when the test says so; what was given to each is noted."""

    def __init__(self, name: str = "a", order: int = 0, act: Any = echo, **info: Any) -> None:
        super().__init__(name, order, act, blocking=True, **info)
        self.threads: list[threading.Thread] = []
        self.go = threading.Semaphore(0)
        self.seen: list[list[Any]] = []

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        self.threads.append(threading.current_thread())
        before = [list(req.pending) for req in reqs], [req.ended for req in reqs]
        results = super().step(reqs) if self.go.acquire(timeout=PATIENCE_S) else []
        after = [list(req.pending) for req in reqs], [req.ended for req in reqs]
        self.seen.append([before, after])
        return results

    async def entered(self, steps: int = 1) -> None:
        await until(lambda: len(self.threads) >= steps)


def blocking(desk: Desk) -> list[messages.Blocking]:
    return [message for message in desk.sent if isinstance(message, messages.Blocking)]


def trying(desk: Desk) -> tuple[str, ...]:
    return [message.runs for message in desk.sent if isinstance(message, messages.Trying)][-1]


async def settled(desk: Desk) -> None:
    await until(lambda: not desk.worker.runs)
    assert desk.worker.free == {name: stage.info.slots for name, stage in desk.worker.stages.items()}


async def test_beats_and_other_stages_go_on_while_a_blocking_step_lasts() -> None:
    stage, other = Held(), FakeStage("b", 1)
    async with working(stage, other) as desk:
        desk.put(opened("r"), *fed("r", 1), messages.End("r"))
        await stage.entered()
        assert desk.worker.beat("w").queues == {"a": 0, "b": 0}, "who is in a step waits for none"
        desk.put(opened("s", "b"), *fed("s", 1, 2), messages.End("s"))
        await desk.ended("s")
        assert desk.data("s") == [1, 2]
        assert desk.worker.beat("w").steps == 3
        assert not desk.data("r")
        stage.go.release(2)
        await desk.ended("r")
        assert desk.data("r") == [1]
        await settled(desk)
    assert {thread.name for thread in stage.threads} == {"step:a"}


async def test_there_is_one_step_at_a_time_and_the_next_has_all_who_came_meanwhile() -> None:
    stage = Held()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await stage.entered()
        desk.put(opened("s"), *fed("s", 1), opened("t"), *fed("t", 1, 2), *fed("r", 2))
        await turns()
        assert len(stage.threads) == 1
        assert desk.worker.beat("w").queues == {"a": 2}, "who waits for it is counted"
        stage.go.release()
        await stage.entered(2)
        stage.go.release()
        await until(lambda: len(stage.batches) == 2)
        assert sorted(stage.batches[1]) == ["r", "s", "t"]
        stage.go.release(3)
        desk.put(*(messages.End(run) for run in "rst"))
        await desk.ended("r", "s", "t")
        assert [desk.data(run) for run in "rst"] == [[1, 2], [1], [1, 2]]
        await settled(desk)


async def test_what_comes_for_a_request_in_mid_step_waits_for_the_steps_end() -> None:
    stage = Held()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await stage.entered()
        desk.put(*fed("r", 2, 3), messages.End("r"))
        await turns()
        stage.go.release(9)
        await desk.ended("r")
        (pending, ended), (pending_after, ended_after) = stage.seen[0]
        assert ([data_of(one) for one in pending[0]], ended) == ([1], [False])
        assert (pending_after, ended_after) == ([[]], [False])
        assert desk.data("r") == [1, 2, 3]
        await settled(desk)


async def test_the_end_of_a_request_in_mid_step_waits_for_the_steps_end() -> None:
    """Else a stage that looks first at what lies there, and then at whether that is all, loses what came between."""
    stage = Held()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await stage.entered()
        desk.put(messages.End("r"))
        await turns()
        stage.go.release(9)
        await desk.ended("r")
        assert [ended for _, (_, ended) in stage.seen] == [[False], [True]]
        await settled(desk)


async def test_a_step_learns_that_its_request_was_closed() -> None:
    closed: list[bool] = []

    def look(req: StageRequest) -> Result:
        closed.append(req.closed)
        return echo(req)

    stage = Held(act=look)
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1), opened("s"), *fed("s", 1))
        await stage.entered()
        desk.put(messages.Close("r"))
        stage.go.release()
        await until(lambda: len(closed) == 2)
        assert closed == [True, False]
        stage.go.release(9)


async def test_a_request_that_is_closed_in_mid_step_keeps_its_slot_until_the_step_has_returned() -> None:
    slots: list[tuple[str, int]] = []
    states: dict[str, Any] = {}

    def note(req: StageRequest) -> Result:
        slots.append((req.request.id, req.slot))
        req.state = states.setdefault(req.request.id, {1, 2})
        old.append(req)
        return echo(req)

    old: list[StageRequest] = []

    stage = Held(act=note, slots=1)
    async with working(stage) as desk:
        desk.put(opened("old"), *fed("old", 1))
        await stage.entered()
        desk.put(messages.Close("old"), opened("new"), *fed("new", 2), messages.End("new"))
        await until(lambda: desk.worker.runs == 1)
        await turns()
        assert desk.worker.free == {"a": 0}
        assert stage.opened == 1, "nobody is in the slot of who is still being stepped"
        stage.go.release(3)
        await desk.ended("new")
        assert desk.data("old") == [], "what it would have been given is dropped"
        assert desk.data("new") == [2]
        assert slots == [("old", 0), ("new", 0), ("new", 0)]
        await settled(desk)
        assert [req.state for req in old] == [None] * 3, "and what the stage held for them is let go of"


async def test_a_step_that_raises_in_its_thread_ends_its_request_and_never_the_loop() -> None:
    def act(req: StageRequest) -> Result:
        if req.pending and data_of(req.pending[0]) == "bad":
            raise ZeroDivisionError
        return echo(req)

    stage = Held(act=act)
    stage.go.release(99)
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", "bad"))
        await desk.ended("r")
        assert [failed.code for failed in desk.of(messages.Failed, "r")] == ["stage_failed"]
        desk.put(opened("s"), *fed("s", 1), messages.End("s"))
        await desk.ended("s")
        assert desk.data("s") == [1]
        await settled(desk)


async def test_a_step_of_several_that_raises_in_its_thread_has_each_begin_again() -> None:
    def act(req: StageRequest) -> Result:
        raise ZeroDivisionError

    stage = Held(act=act)
    async with working(stage) as desk:
        desk.put(opened("r"), opened("s"), *fed("r", 1), *fed("s", 1))
        stage.go.release()
        await desk.ended("r", "s")
        assert [desk.of(messages.Failed, run)[0].code for run in "rs"] == ["batch_lost"] * 2
        await settled(desk)


async def test_who_is_in_a_blocking_step_may_be_at_fault_however_often_it_went_well() -> None:
    """Such a step is long, and what else the worker does meanwhile is not: whoever steps beside it is no suspect."""
    stage = Held()
    async with working(stage, FakeStage("b", 1)) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await stage.entered()
        stage.go.release()
        await until(lambda: desk.data("r") == [1])
        await until(lambda: trying(desk) == ())
        desk.put(*fed("r", 2))
        await stage.entered(2)
        assert trying(desk) == ("r",)
        desk.put(opened("s", "b"), *fed("s", 1, 2), messages.End("s"))
        await desk.ended("s")
        assert trying(desk) == ("r",)
        stage.go.release(9)
        await until(lambda: trying(desk) == ())


class Slow(Held):
    """A second and a half for each row."""

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        return sum(1.5 * len(req.pending) for req in reqs)


async def test_the_server_learns_how_long_a_step_may_take_before_it_begins_and_when_it_returned() -> None:
    stage = Slow()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1, 2))
        await stage.entered()
        assert blocking(desk) == [messages.Blocking("a", 3.0)]
        stage.go.release()
        await until(lambda: len(blocking(desk)) >= 2)
        assert blocking(desk)[1] == messages.Blocking("a", 0.0)
        stage.go.release(9)


async def test_what_the_server_is_to_know_leaves_before_a_call_that_may_hold_pythons_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link writes at the end of the loop's turn, or in the next one."""
    order: list[str] = []
    begin = StepThread[Any].begin

    def noted(thread: StepThread[Any], work: Any, returned: Any) -> None:
        order.append("begins")
        begin(thread, work, returned)

    def through(message: messages.Message) -> messages.Message:
        if message == messages.Blocking("a", DEADLINE_S):
            asyncio.get_running_loop().call_soon(order.append, "has left")
        return message

    monkeypatch.setattr(StepThread, "begin", noted)
    stage = Held()
    stage.go.release(9)
    async with working(stage, through=through) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await until(lambda: desk.data("r") == [1])
    assert order == ["has left", "begins"]


class Strange(Held):
    def __init__(self, told: Any) -> None:
        super().__init__()
        self.told = told

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        return self.told / 1


@pytest.mark.parametrize("told", [0.0, -1.0, float("inf"), float("nan"), "soon"])
async def test_a_deadline_that_cannot_be_is_told_in_the_log_and_the_usual_one_counts(
    told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Strange(told)
    stage.go.release(9)
    with caplog.at_level(logging.ERROR):
        async with working(stage) as desk:
            desk.put(opened("r"), *fed("r", 1))
            await until(lambda: desk.data("r") == [1])
            assert blocking(desk)[0] == messages.Blocking("a", DEADLINE_S)
    assert "gave no valid deadline" in caplog.text


async def test_a_worker_that_ends_waits_for_no_step() -> None:
    stage = Held()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await stage.entered()
    assert stage.threads[0].is_alive(), "it is still in its call"
    stage.go.release()
    await until(lambda: not stage.threads[0].is_alive())
    assert desk.data("r") == []


async def test_a_thread_whose_loop_is_closed_ends_all_the_same() -> None:
    stage = Held()

    async def leave() -> None:
        async with working(stage) as desk:
            desk.put(opened("r"), *fed("r", 1))
            await stage.entered()

    await asyncio.to_thread(asyncio.run, leave())
    stage.go.release()
    await until(lambda: not stage.threads[0].is_alive())


class Meeting(FakeStage):
    """Its first step returns once the other replica's first one is under way, too."""

    def __init__(self, both: threading.Barrier) -> None:
        super().__init__(blocking=True)
        self.both = both

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        if not self.batches:
            self.both.wait(PATIENCE_S)
        return super().step(reqs)


@pytest.mark.seed("A3.12")
async def test_two_replicas_step_at_the_same_time() -> None:
    """Neither waits for the other's answers to be read: each of two requests has a replica, and both step."""
    both = threading.Barrier(2)
    stages = [Meeting(both), Meeting(both)]
    async with rigged([stages[0]], [stages[1]]) as rig:

        async def read(id: str) -> list[Any]:
            async with rig.open(msgspec.structs.replace(request(live=True), id=id, session=id), numbers(3)) as chunks:
                return [data_of(chunk) async for chunk in chunks]

        assert await asyncio.gather(read("r"), read("s")) == [[0, 1, 2]] * 2
        assert sorted(batch for stage in stages for (batch,) in stage.batches) == ["r"] * 4 + ["s"] * 4
        assert {len({batch for (batch,) in stage.batches}) for stage in stages} == {1}
