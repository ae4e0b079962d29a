"""A request for which a stage has no room steps again once there may be some, and not before."""

from __future__ import annotations

import pytest

from engine.ipc import messages
from engine.worker.loop import run
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, Result, echo, fed, opened, turns, until, working


class OneAtATime(FakeStage):
    """A stage that has room for one request."""

    def __init__(self, slots: int = 16) -> None:
        super().__init__(act=self.one, slots=slots)
        self.holder: StageRequest | None = None

    def one(self, req: StageRequest) -> Result:
        if self.holder is None or self.holder.done or self.holder.closed:
            self.holder = req
        req.waits = self.holder is not req
        return [] if req.waits else echo(req)


@pytest.mark.parametrize("over", [messages.End("r"), messages.Close("r")])
async def test_it_steps_once_another_is_over_and_costs_nothing_until_then(over: messages.Message) -> None:
    stage = OneAtATime()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await until(lambda: desk.data("r") == [1])
        desk.put(opened("s"), *fed("s", 2), messages.End("s"))
        await turns(50)
        stepped = len(stage.batches)
        await turns(50)
        assert len(stage.batches) == stepped, "the loop rests"
        assert desk.data("s") == []
        desk.put(over)
        await desk.ended("s")
        assert desk.data("s") == [2]
        await until(lambda: not desk.worker.runs)


async def test_it_steps_once_another_is_done_at_this_stage_though_not_at_the_next() -> None:
    def never(req: StageRequest) -> Result:
        req.waits = True
        return []

    stage = OneAtATime()
    async with working(stage, FakeStage("b", 1, act=never)) as desk:
        desk.put(opened("r", "a", "b"), *fed("r", 1), messages.End("r"))
        desk.put(opened("s"), *fed("s", 2), messages.End("s"))
        await desk.ended("s")
        assert ["r", "s"] in stage.batches
        assert not desk.of(messages.End, "r")


async def test_what_more_comes_in_may_change_what_it_needs() -> None:
    stage = OneAtATime()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await until(lambda: desk.data("r") == [1])
        desk.put(opened("s"), *fed("s", 2))
        await until(lambda: ["s"] in stage.batches)
        stage.holder = None
        await turns(50)
        assert desk.data("s") == []
        desk.put(*fed("s", 3))
        await until(lambda: desk.data("s") == [2, 3])


async def test_the_server_knows_that_its_stage_holds_it_up_and_it_is_not_taken_for_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "MOST_SILENT_STEPS", 3)
    stage = OneAtATime(slots=3)
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await until(lambda: desk.data("r") == [1])
        assert desk.worker.beat("w").moving == ()
        desk.put(opened("s"), *fed("s", 2), messages.End("s"))
        for n in range(5):
            await until(lambda n=n: stage.batches.count(["s"]) > n)
            desk.put(opened(f"other {n}"))
            await until(lambda: not desk.worker.free["a"])
            desk.put(messages.Close(f"other {n}"))
        await turns(50)
        beat = desk.worker.beat("w")
        assert (beat.moving, beat.queues) == (("s",), {"a": 1})
        desk.put(messages.End("r"))
        await desk.ended("s")
        assert not desk.of(messages.Failed, "s")
