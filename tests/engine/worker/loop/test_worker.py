"""The step loop: slots on every path, isolation, and what is left when a run is over."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

from engine.chunk import Audio, Chunk, Speech, Transcript, kinds
from engine.core import SPEAKER_RATE_HZ, AudioPart, Message, Request, StageInfo
from engine.deployment.config import ChunkSpec
from engine.errors import ContextOverflow, RequestError, StageFailed
from engine.ipc import messages
from engine.worker.loop.worker import Worker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Broken, Streamed
from tests.engine.fakes import Desk, FakeStage, Result, data_of, echo, fed, opened, request, turns, until, working, x


async def settled(desk: Desk) -> None:
    """Everything of every run is given back."""
    await until(lambda: not desk.worker.runs)
    assert desk.worker.free == {name: stage.info.slots for name, stage in desk.worker.stages.items()}


async def test_a_run_gives_back_what_it_is_fed() -> None:
    async with working(FakeStage()) as desk:
        desk.put(opened("r"), *fed("r", 1, 2, 3), messages.End("r"))
        await desk.ended("r")
        assert desk.data("r") == [1, 2, 3]
        await settled(desk)


@pytest.mark.seed("A2.5", "A4.17")
async def test_the_last_message_of_a_run_is_its_end() -> None:
    async with working(FakeStage()) as desk:
        desk.put(opened("r"), *fed("r", 1), messages.End("r"))
        await desk.ended("r")
        assert isinstance(desk.sent[-1], messages.End)


@pytest.mark.seed("A2.5", "A4.17")
async def test_a_run_ends_once_and_with_the_last_chunk_of_its_last_stage() -> None:
    """Its first stage has long ended when the last one begins to give."""

    def at_the_end(req: StageRequest) -> Result:
        req.state = [*(req.state or []), *req.pending]
        req.pending.clear()
        if not req.ended:
            return []
        req.done = not req.state
        return [req.state.pop(0)] if req.state else []

    nothing = frozenset[str]()
    async with working(FakeStage("a", 0, emits=nothing), FakeStage("b", 1, at_the_end, feeds=nothing)) as desk:
        desk.put(opened("r", "a", "b"), *fed("r", 1, 2, 3), messages.End("r"))
        await desk.ended("r")
        await settled(desk)
        assert desk.data("r") == [1, 2, 3]
        assert len(desk.of(messages.End, "r")) == 1
        assert isinstance(desk.sent[-1], messages.End)


async def test_closed_before_its_first_step_a_run_leaves_nothing() -> None:
    async with working(FakeStage()) as desk:
        desk.put(opened("r"), messages.Close("r"))
        await turns()
        await settled(desk)


@pytest.mark.parametrize("after", range(12))
async def test_closed_at_any_turn_a_run_leaves_nothing(after: int) -> None:
    async with working(FakeStage("a", 0), FakeStage("b", 1)) as desk:
        desk.put(opened("r", "a", "b"), *fed("r", *range(30)))
        await turns(after)
        desk.put(messages.Close("r"), messages.Close("r"))
        await turns()
        await settled(desk)
        said = len(desk.sent)
        desk.put(*fed("r", 1), messages.Grant("r", 1), messages.PlayoutUpdate("r", "playing"), messages.End("r"))
        await turns()
        assert len(desk.sent) == said


@pytest.mark.parametrize("after", range(6))
async def test_a_slot_that_is_closed_serves_the_very_next_open(after: int) -> None:
    async with working(FakeStage(slots=1)) as desk:
        desk.put(opened("old"), *fed("old", 1))
        await turns(after)
        desk.put(messages.Close("old"), opened("new"), *fed("new", 2), messages.End("new"))
        await desk.ended("new")
        assert not desk.of(messages.Failed, "new")
        assert desk.data("new") == [2]
        await settled(desk)


@pytest.mark.seed("A4.18")
async def test_a_closed_run_is_not_stepped_again() -> None:
    stage = FakeStage()
    async with working(stage) as desk:
        desk.put(opened("r", credit=1000), *fed("r", *range(60)))
        await until(lambda: bool(stage.batches))
        desk.put(messages.Close("r"))
        steps = len(stage.batches)
        await turns()
        assert len(stage.batches) == steps


class Keeping(FakeStage):
    """Holds something for each request, as a native stream."""

    held: weakref.ref[Any]

    def open(self, req: StageRequest) -> None:
        super().open(req)
        req.state = cast("Any", Keeping("held"))
        self.held = weakref.ref(req.state)


@pytest.mark.parametrize("last", [messages.Close("r"), messages.End("r")])
async def test_what_a_stage_holds_for_a_run_goes_with_it(last: messages.Message) -> None:
    """At once: nothing waits for the garbage collector, which a native stream would run on until."""
    stage = Keeping()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", 1))
        await until(lambda: desk.data("r") == [1])
        assert stage.held() is not None
        gc.disable()
        try:
            desk.put(last)
            await settled(desk)
            assert stage.held() is None
        finally:
            gc.enable()


class Refusing(FakeStage):
    def open(self, req: StageRequest) -> None:
        raise ContextOverflow("too long")


async def test_refusal_by_a_later_stage_frees_the_earlier_ones_slot() -> None:
    async with working(FakeStage("a", 0), Refusing("b", 1)) as desk:
        desk.put(opened("r", "a", "b"))
        await desk.ended("r")
        assert desk.of(messages.Failed, "r") == [messages.Failed("r", "context_overflow", "too long")]
        await settled(desk)


async def test_an_unknown_stage_fails_the_run_and_nothing_else() -> None:
    async with working(FakeStage()) as desk:
        desk.put(opened("r", "a", "nobody"), opened("s"), *fed("s", 1), messages.End("s"))
        await desk.ended("r", "s")
        assert desk.of(messages.Failed, "r")
        assert desk.data("s") == [1]
        await settled(desk)


class BrokenBridge(FakeStage):
    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            if data_of(chunk) == "bad":
                raise RequestError("bad input")
            if data_of(chunk) == "worse":
                raise ZeroDivisionError
            yield chunk


@pytest.mark.parametrize(("data", "code"), [("bad", "invalid_request"), ("worse", "stage_failed")])
async def test_a_failing_bridge_fails_its_run_once(data: str, code: str) -> None:
    async with working(BrokenBridge()) as desk:
        desk.put(opened("r"), opened("s"), *fed("r", 1, data), *fed("s", 1), messages.End("s"))
        await desk.ended("r", "s")
        await settled(desk)
        assert [failed.code for failed in desk.of(messages.Failed, "r")] == [code]
        assert desk.data("s") == [1]


def breaking(how: Any) -> Any:
    def act(req: StageRequest) -> Result:
        if req.request.id == "bad" and req.pending and data_of(req.pending[0]) == 2:
            return how()
        return echo(req)

    return act


def raises() -> Result:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "how",
    [
        lambda: StageFailed("this one"),
        lambda: None,
        lambda: [x(1), "not a chunk"],
        lambda: [Audio(cast("Any", 5))],
    ],
    ids=["error", "none", "no chunk", "no samples"],
)
async def test_a_request_that_fails_ends_its_own_run_only(how: Any) -> None:
    async with working(FakeStage(act=breaking(how), emits=frozenset({"x", "audio"}))) as desk:
        desk.put(opened("bad"), opened("good"), *fed("bad", 1, 2, 3), *fed("good", 1, 2, 3), messages.End("good"))
        await desk.ended("bad", "good")
        assert [failed.code for failed in desk.of(messages.Failed, "bad")] == ["stage_failed"]
        assert desk.data("good") == [1, 2, 3]
        await settled(desk)


async def test_a_step_of_several_that_raises_has_each_begin_again_alone() -> None:
    def act(req: StageRequest) -> Result:
        return raises() if req.pending and data_of(req.pending[0]) == "bad" else echo(req)

    stage = FakeStage(act=act)
    async with working(stage) as desk:
        desk.put(opened("good"), opened("bad"), *fed("good", 1), *fed("bad", "bad"))
        await desk.ended("good", "bad")
        for run in ("good", "bad"):
            (failed,) = desk.of(messages.Failed, run)
            assert failed.code == "batch_lost"
            assert "Error" not in failed.message, "what is within is for the log"
        stage.batches.clear()
        alone = messages.Resume({}, {}, None, alone=True)
        again = [messages.Open(run, request(id=run), ("a",), 64, resume=alone) for run in ("good2", "bad2")]
        ends = messages.End("good2"), messages.End("other")
        desk.put(*again, opened("other"), *fed("good2", 1), *fed("bad2", "bad"), *fed("other", 2), *ends)
        await desk.ended("good2", "bad2", "other")
        assert all(len(batch) == 1 for batch in stage.batches), "who may have broken a step is in no other's"
        assert [failed.code for failed in desk.of(messages.Failed, "bad2")] == ["stage_failed"]
        assert (desk.data("good2"), desk.data("other")) == ([1], [2])
        await settled(desk)


async def test_nothing_but_the_failure_follows_a_failure() -> None:
    def act(req: StageRequest) -> Result:
        return StageFailed("now") if req.pending and data_of(req.pending[0]) == 2 else echo(req)

    async with working(FakeStage(act=act)) as desk:
        desk.put(opened("r"), *fed("r", 1, 2, 3))
        await desk.ended("r")
        await turns()
        assert desk.data("r") == [1]
        assert isinstance(desk.sent[-1], messages.Failed)


class Miscounting(FakeStage):
    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        return []


@pytest.mark.parametrize("stage", [Miscounting("bad"), FakeStage("bad", act=lambda req: raises())])
async def test_a_step_that_breaks_ends_its_batch_and_never_the_loop(stage: FakeStage) -> None:
    async with working(stage, FakeStage("good", 1)) as desk:
        desk.put(opened("r", "bad"), *fed("r", 1))
        await desk.ended("r")
        assert [failed.code for failed in desk.of(messages.Failed, "r")] == ["stage_failed"]
        desk.put(opened("s", "good"), *fed("s", 1), messages.End("s"))
        await desk.ended("s")
        assert desk.data("s") == [1]
        await settled(desk)


@pytest.mark.seed("A2.6")
async def test_what_cannot_be_sent_fails_its_run_and_never_the_loop() -> None:
    async with working(FakeStage(), through=lambda message: messages.decode(messages.encode(message)[4:])) as desk:
        desk.put(opened("r"), opened("s"), *fed("r", object()), *fed("s", 1), messages.End("s"))
        await desk.ended("r", "s")
        assert desk.of(messages.Failed, "r")
        assert desk.data("s") == [1]
        await settled(desk)


async def test_a_run_without_credit_is_not_stepped() -> None:
    stage = FakeStage()
    async with working(stage) as desk:
        desk.put(opened("r", credit=3), *fed("r", *range(20)))
        await turns(200)
        assert len(desk.of(messages.Emit, "r")) == 3
        desk.put(messages.Grant("r", 2))
        await turns(200)
        assert len(desk.of(messages.Emit, "r")) == 5
        desk.put(messages.Grant("r", 1000), messages.End("r"))
        await desk.ended("r")
        assert desk.data("r") == list(range(20))


async def test_a_full_stream_between_stages_holds_the_upstream_stage() -> None:
    def never(req: StageRequest) -> Result:
        req.pending.popleft()
        return []

    class Slow(FakeStage):
        async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
            await asyncio.Event().wait()
            yield

    upstream = FakeStage("a", 0, emits=frozenset[str]())
    async with working(upstream, Slow("b", 1, never)) as desk:
        desk.put(opened("r", "a", "b"), *fed("r", *range(200)))
        await turns(500)
        assert 64 <= len(upstream.batches) <= 66
        desk.put(messages.Close("r"))
        await settled(desk)


async def test_a_stage_that_ends_early_takes_its_input_all_the_same() -> None:
    """Else whoever feeds it waits for credit for ever."""

    def once(req: StageRequest) -> Result:
        req.done = True
        return [x("only")]

    class Endless(FakeStage):
        async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
            await asyncio.Event().wait()
            yield

    async with working(FakeStage("a", 0, once), Endless("b", 1)) as desk:
        desk.put(opened("r", "a", "b"), *fed("r", *range(30)))
        await turns(50)
        desk.put(*fed("r", *range(34)))
        await turns(50)
        assert sum(grant.n for grant in desk.of(messages.Grant, "r")) == 64
        desk.put(messages.Close("r"))
        await settled(desk)


async def test_each_open_request_has_a_slot_of_its_own() -> None:
    slots: dict[str, int] = {}

    def note(req: StageRequest) -> Result:
        slots[req.request.id] = req.slot
        req.pending.clear()
        return []

    async with working(FakeStage(act=note, slots=8)) as desk:
        for i in range(8):
            desk.put(opened(f"r{i}"), *fed(f"r{i}", 0))
        await until(lambda: len(slots) == 8)
        assert sorted(slots.values()) == list(range(8))


async def test_a_batch_takes_every_ready_request_up_to_its_size() -> None:
    stage = FakeStage(slots=16)
    async with working(stage, max_batch=4) as desk:
        for i in range(10):
            desk.put(opened(f"r{i}"), *fed(f"r{i}", 0))
        await turns(50)
        assert [len(batch) for batch in stage.batches] == [4, 4, 2]


async def test_a_stage_takes_no_more_at_once_than_it_says_nor_more_than_its_worker_allows() -> None:
    one, many = FakeStage("a", batch=1), FakeStage("b", batch=9)
    async with working(one, many, max_batch=2) as desk:
        for i in range(3):
            desk.put(opened(f"a{i}", "a"), *fed(f"a{i}", 0), opened(f"b{i}", "b"), *fed(f"b{i}", 0))
        await turns(50)
    assert [len(batch) for batch in one.batches] == [1, 1, 1]
    assert [len(batch) for batch in many.batches] == [2, 1]


def speak(req: StageRequest) -> Result:
    """A tenth of a second of sound for each row."""
    req.pending.popleft()
    return [Audio(np.zeros(SPEAKER_RATE_HZ // 10, np.float32))]


async def test_who_arrives_during_a_step_is_in_the_next_one() -> None:
    """A run's task and its adapters take turns of the loop: none of those is another's step."""
    late = [opened("late"), *fed("late", 1, 2)]

    def act(req: StageRequest) -> Result:
        while late:
            desk.put(late.pop(0))
        return echo(req)

    stage = FakeStage(act=act)
    async with working(stage) as desk:
        desk.put(opened("early"), *fed("early", *range(5)))
        await until(lambda: len(stage.batches) > 2)
    assert stage.batches[:3] == [["early"], ["early", "late"], ["early", "late"]]


class Reading(FakeStage):
    """It reads one request only once a gate is open."""

    def __init__(self) -> None:
        super().__init__("a")
        self.gate = asyncio.Event()

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        if req.request.id == "late":
            await self.gate.wait()
        async for item in super().adapt(req, inputs):
            yield item


@pytest.mark.parametrize("opens", [True, False], ids=["read in time", "not read in time"])
async def test_a_first_step_waits_a_moment_for_a_request_that_came_with_it(opens: bool) -> None:
    stage, now_s = Reading(), 100.0
    async with working(stage, clock=lambda: now_s) as desk:
        desk.worker._scheduler.timed("a", 1.0)
        for id in ("first", "late"):
            desk.put(opened(id, "a"), *fed(id, 1), messages.End(id))
        await turns(50)
        assert not stage.batches
        if opens:
            stage.gate.set()
        else:
            now_s += 0.031  # it is woken by the clock of the event loop, which goes on
        await until(lambda: bool(stage.batches))
        assert stage.batches[0] == (["first", "late"] if opens else ["first"])
        stage.gate.set()
        await desk.ended("late")


async def test_a_request_that_was_read_during_a_step_is_in_the_next_one() -> None:
    """In a thread: what it read comes to the loop a turn after the step, and to the stage another one later."""
    with ThreadPoolExecutor(1) as threads:
        gate = threading.Event()

        class Reads(FakeStage):
            async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
                async for item in super().adapt(req, inputs):
                    if req.request.id == "late" and not gate.is_set():
                        await asyncio.get_running_loop().run_in_executor(threads, gate.wait)
                    yield item

        def act(req: StageRequest) -> Result:
            gate.set()
            threads.submit(int).result()  # behind it, the thread has nothing left to say
            return echo(req)

        stage = Reads(act=act)
        async with working(stage) as desk:
            desk.put(
                opened("early"), *fed("early", *range(5)), opened("late"), *fed("late", 1, 2, 3), messages.End("late")
            )
            await until(lambda: len(stage.batches) > 2)
    assert stage.batches[:3] == [["early"], ["early", "late"], ["early", "late"]]


async def test_a_held_answer_is_made_as_far_ahead_as_it_may_and_plays_once_it_is_due() -> None:
    now_s = 100.0
    stage = FakeStage(act=speak, emits=frozenset({"audio"}))
    async with working(stage, clock=lambda: now_s) as desk:
        desk.put(opened("r", lead_s=1.0), messages.PlayoutUpdate("r", "held"), *fed("r", *range(40)))
        await turns(200)
        held = len(desk.of(messages.Emit, "r"))
        assert held == 11  # nobody hears it, so time does not make room
        now_s += 30
        await turns(200)
        assert len(desk.of(messages.Emit, "r")) == held
        desk.put(messages.PlayoutUpdate("r", "due"), messages.PlayoutUpdate("r", "playing"))
        now_s += 0.95
        desk.put(messages.PlayoutUpdate("r", "playing"))  # as any report it wakes the loop
        await turns(200)
        assert len(desk.of(messages.Emit, "r")) == held
        desk.put(messages.PlayoutUpdate("r", "playing", skipped_s=0.25))
        await turns(200)
        assert len(desk.of(messages.Emit, "r")) == held + 2, "what is not played is nothing that he still has to hear"
        desk.put(messages.Close("r"))
        await settled(desk)


async def test_a_listener_who_comes_due_while_the_loop_looks_is_not_forgotten() -> None:
    """The clock goes on between two looks at it: by more than the listener had left to wait."""
    now_s = 0.0

    def hasty() -> float:
        nonlocal now_s
        now_s += 0.025
        return now_s

    def frame(req: StageRequest) -> Result:
        return [Audio(np.zeros(SPEAKER_RATE_HZ // 25, np.float32)) for _ in cast("list[Chunk]", echo(req))]

    stage = FakeStage(act=frame, emits=frozenset({"audio"}))
    async with working(stage, clock=hasty) as desk:
        desk.put(opened("r", lead_s=0.0), *fed("r", *range(20)), messages.End("r"))
        await desk.ended("r")
        assert len(desk.data("r")) == 20


async def test_who_is_held_waits_for_whoever_is_heard() -> None:
    stage = FakeStage()
    async with working(stage, max_batch=1) as desk:
        desk.put(opened("held"), messages.PlayoutUpdate("held", "held"), opened("due"))
        desk.put(*fed("held", 1, 2, 3), *fed("due", 1, 2, 3), messages.End("held"), messages.End("due"))
        await desk.ended("held", "due")
    assert [batch[0] for batch in stage.batches] == ["due"] * 4 + ["held"] * 4


async def test_a_recording_comes_to_ears_before_what_is_spoken_and_to_nobody_else() -> None:
    """Of the last message, and as far as nobody has transcribed it yet."""
    earlier = Message("user", (AudioPart(np.ones(5, np.int16)),))
    last = Message("user", (AudioPart(np.ones(7, np.int16), transcript="hello"), AudioPart(np.ones(9, np.int16))))
    for takes, lengths in ((kinds(Speech), [9, 4]), (kinds(Speech, Transcript), [4])):
        got: list[int] = []

        def note(req: StageRequest, got: list[int] = got) -> Result:
            got += [len(chunk.pcm) for chunk in req.pending]
            req.pending.clear()
            req.done = req.ended
            return []

        async with working(FakeStage(act=note, takes=takes, answers=False)) as desk:
            asked = Request(id="r", session="s", messages=(earlier, last), live=True)
            desk.put(messages.Open("r", asked, ("a",), 64))
            desk.put(messages.Feed("r", Speech(np.ones(4, np.int16))), messages.End("r"))
            await desk.ended("r")
        assert got == lengths


class Breaking(Streamed):
    """A stage of a library that ends when it is told to."""

    info = StageInfo(name="a", answers=True)

    def __init__(self, ends: asyncio.Event, error: Exception) -> None:
        super().__init__(StageConfig())
        self._ends, self._error = ends, error

    async def watch(self) -> None:
        await self._ends.wait()
        raise self._error


@pytest.mark.parametrize(("error", "goes_on"), [(Broken("gone"), False), (ValueError("a bug"), True)])
async def test_what_is_of_no_use_any_more_ends_its_worker_and_a_watch_that_fails_does_not(
    error: Exception, goes_on: bool
) -> None:
    ends = asyncio.Event()
    worker = Worker({"a": Breaking(ends, error)}, ChunkSpec(), {"a": 1}, lambda message: None)
    serving = asyncio.create_task(worker.serve())
    await turns()
    ends.set()
    await turns()
    assert serving.done() is not goes_on
    serving.cancel()
    [ended] = await asyncio.gather(serving, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError if goes_on else ExceptionGroup)
