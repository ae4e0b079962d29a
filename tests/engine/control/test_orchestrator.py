"""One request through the stages: what its reader meets, and what is left of it whatever happens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from engine.chunk import Audio, Chunk, Text, Usage, kinds
from engine.core import IN_WRITING, Facets, Sampling, Voice
from engine.errors import EngineError, ReplicaLost, RequestError, StageFailed, StageUnavailable, Stalled
from engine.ipc import messages
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, LoopClock, Result, Rig, data_of, echo, request, rigged, turns, until, whole, x

NOTHING = frozenset[str]()


class Source(FakeStage):
    """Emits ``n`` numbers, unasked."""

    def __init__(self, n: int, name: str = "a", order: int = 0, **info: Any) -> None:
        super().__init__(name, order, self.count, **info)
        self.n = n

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        req.state = 0
        yield "start"

    def count(self, req: StageRequest) -> Result:
        req.pending.clear()
        req.needs_input = False
        if req.state == self.n:
            req.done = True
            return []
        req.state += 1
        return [x(req.state)]


async def numbers(n: int = 3, then: Callable[[], None] = lambda: None) -> AsyncGenerator[Chunk]:
    for i in range(n):
        yield x(i)
        await asyncio.sleep(0)
    then()


async def read(rig: Rig, inputs: AsyncIterator[Chunk] | None = None, **fields: Any) -> list[Any]:
    async with rig.open(request(**fields), inputs) as chunks:
        return [data_of(chunk) async for chunk in chunks]


async def settled(rig: Rig) -> None:
    await until(lambda: rig.idle)
    for worker in rig.workers:
        assert worker.free == {name: stage.info.slots for name, stage in worker.stages.items()}


async def test_a_request_without_a_voice_names_the_first_one_to_all_stages() -> None:
    """Otherwise a codec's decoder could have another default than the stage before it."""
    seen = list[str | None]()

    def look(req: StageRequest) -> Result:
        seen.append(req.request.voice)
        return echo(req)

    voices = Facets(voices=(Voice("slt", "Slt"), Voice("rms", "Rms")))
    async with rigged([FakeStage("a", 0, look, emits=NOTHING, facets=voices), FakeStage("b", 1, look)]) as rig:
        for voice in (None, "rms"):
            seen.clear()
            await read(rig, numbers(1), voice=voice)
            assert set(seen) == {voice or "slt"}


def inner(name: str, order: int, act: Any = echo) -> FakeStage:
    """A stage that feeds the next one, and emits nothing to the client."""
    return FakeStage(name, order, act, emits=NOTHING)


LAYOUTS = {
    "one worker": lambda: [[inner("a", 0), inner("b", 1), FakeStage("c", 2)]],
    "two workers": lambda: [[inner("a", 0), inner("b", 1)], [FakeStage("c", 2)]],
    "three workers": lambda: [[inner("a", 0)], [inner("b", 1)], [FakeStage("c", 2)]],
}
everywhere = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
Layout = Callable[[], list[list[FakeStage]]]


@pytest.mark.seed("A2.3", "A4.4")
@everywhere
async def test_what_is_fed_comes_out_in_order(layout: Layout) -> None:
    async with rigged(*layout()) as rig:
        assert await read(rig, numbers(150), live=True) == list(range(150))
        await settled(rig)


@pytest.mark.seed("A4.1")
@pytest.mark.parametrize("apart", [False, True])
async def test_what_a_later_stage_gives_comes_before_an_earlier_one_has_ended(apart: bool) -> None:
    """As sound does, before the answer has been thought out."""

    def second(req: StageRequest) -> Result:
        return [x(f"heard {data_of(req.pending.popleft())}")] if req.pending else echo(req)

    stages = [Source(300), FakeStage("b", 1, second)]
    async with rigged(*([[stage] for stage in stages] if apart else [stages])) as rig:
        got = await read(rig)
        assert sorted(got, key=str) == sorted([*range(1, 301), *(f"heard {n}" for n in range(1, 301))], key=str)
        assert got.index("heard 1") < 100 < got.index(300)
        await settled(rig)


@pytest.mark.seed("A2.14")
@everywhere
async def test_an_empty_turn_ends(layout: Layout) -> None:
    async with rigged(*layout(), stall_s=5) as rig:
        assert await read(rig, numbers(0), live=True) == []
        await settled(rig)


@pytest.mark.seed("A2.10", "A4.13")
@everywhere
async def test_left_at_any_turn_nothing_is_left(layout: Layout) -> None:
    async with rigged(*layout()) as rig:
        for after in range(0, 40, 3):
            async with rig.open(request(live=True), numbers(100)):
                await turns(after)
            assert not any(pool.leased or pool.waiting for pool in rig.pools.values())
        await settled(rig)


@pytest.mark.seed("A3.5")
@everywhere
async def test_leaving_reaches_every_replica_that_the_request_is_on_once(layout: Layout) -> None:
    async with rigged(*layout(), *layout()) as rig:
        closed = Counter[str]()
        for remote in rig.remotes:
            assert remote.link is not None
            said, at = remote.link.send, remote.id

            def send(message: messages.Message, said: Any = said, at: str = at) -> None:
                closed[at] += isinstance(message, messages.Close)
                said(message)

            remote.link.send = send  # pyright: ignore[reportAttributeAccessIssue]
        async with rig.open(request(live=True), numbers(10**6)) as chunks:
            await anext(chunks)
            on = {remote.id for remote in rig.remotes if remote.runs}
        assert len(on) == len(layout())
        assert closed == dict.fromkeys(on, 1)
        await settled(rig)


@everywhere
async def test_cancelled_from_outside_at_any_turn_nothing_is_left(layout: Layout) -> None:
    async with rigged(*layout()) as rig:
        for after in range(0, 40, 3):
            task = asyncio.create_task(read(rig, numbers(100), live=True))
            await turns(after)
            task.cancel()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.result()
            assert not any(pool.leased or pool.waiting for pool in rig.pools.values())
        await settled(rig)


@pytest.mark.seed("A2.7")
async def test_what_a_last_stage_would_feed_holds_up_nothing() -> None:
    """Like the text of an answer without speech, which no talker reads."""
    async with rigged(
        [Source(300, emits=frozenset({"x", "text"}))], [FakeStage("b", 1, emits=frozenset({"audio"}))], stall_s=5
    ) as rig:
        assert await read(rig, wants=IN_WRITING) == list(range(1, 301))


async def test_left_before_its_first_step_a_request_ends_its_stream() -> None:
    async with rigged([Source(3)]) as rig:
        async with rig.open(request()) as chunks:
            pass
        async with asyncio.timeout(30):
            assert [chunk async for chunk in chunks] == []


async def test_a_second_cancel_does_not_leave_the_request_running() -> None:
    """Like a second Ctrl-C while the first is being obeyed."""
    ended = asyncio.Event()

    async def clinging() -> AsyncGenerator[Chunk]:
        try:
            await asyncio.Event().wait()
            yield x(0)
        finally:
            await turns(10)
            ended.set()

    async with rigged([FakeStage()]) as rig:
        task = asyncio.create_task(read(rig, clinging(), live=True))
        await turns()
        task.cancel()
        await turns(3)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert ended.is_set()
        await settled(rig)


async def test_inputs_that_are_not_read_to_their_end_are_closed() -> None:
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[Chunk]:
        try:
            while True:
                yield x(0)
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    def stuck(req: StageRequest) -> Result:
        req.pending.clear()
        return []

    class Deaf(FakeStage):
        async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
            await asyncio.Event().wait()
            yield

    for stage in (FakeStage(act=stuck), Deaf()):
        async with rigged([stage]) as rig:
            async with rig.open(request(live=True), endless()):
                await turns(400)
            assert closed.pop()


@pytest.mark.parametrize("error", [RequestError("bad"), ZeroDivisionError("worse")])
async def test_inputs_that_raise_end_the_request_with_one_engine_error(error: Exception) -> None:
    async def raising() -> AsyncGenerator[Chunk]:
        yield x(1)
        raise error

    async with rigged([FakeStage()]) as rig:
        with pytest.raises(RequestError) as caught:
            await read(rig, raising(), live=True)
        assert "worse" not in str(caught.value)
        assert caught.value is error or caught.value.__cause__ is error
        await settled(rig)


@pytest.mark.seed("A2.8", "A4.5")
async def test_requests_of_one_name_do_not_share_anything() -> None:
    async def from_(first: int) -> AsyncGenerator[Chunk]:
        for i in range(first, first + 30):
            yield x(i)
            await asyncio.sleep(0)

    async with rigged([inner("a", 0)], [FakeStage("b", 1)]) as rig:
        asked = [read(rig, from_(1000 * i), id="same", live=True) for i in range(4)]
        assert await asyncio.gather(*asked) == [list(range(1000 * i, 1000 * i + 30)) for i in range(4)]
        await settled(rig)


async def test_a_request_that_no_stage_serves_is_refused() -> None:
    async with rigged([FakeStage(emits=frozenset({"audio"}))]) as rig:
        with pytest.raises(RequestError, match="gives no text"):
            await read(rig, wants=IN_WRITING)


@pytest.mark.seed("A2.6")
async def test_what_cannot_be_sent_is_refused_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rigged([FakeStage()]) as rig:
        monkeypatch.setattr(rig.remotes[0].link, "send", messages.encode)
        with pytest.raises(EngineError, match="cannot be encoded"):
            await read(rig, text="\ud800")
        assert rig.remotes[0].runs == 0
        await settled(rig)


def failing_at(n: int) -> Callable[[StageRequest], Result]:
    def act(req: StageRequest) -> Result:
        chunk = req.pending.popleft() if req.pending else None
        return StageFailed("here") if chunk and data_of(chunk) == n else [chunk] if chunk else []

    return act


@pytest.mark.seed("A4.17", "A4.21")
@pytest.mark.parametrize("n", [0, 1, 50])
async def test_a_failing_stage_ends_the_stream_after_what_came_before(n: int) -> None:
    for stages in ([[FakeStage("a", 0, failing_at(n))]], [[inner("a", 0)], [FakeStage("b", 1, failing_at(n))]]):
        async with rigged(*stages) as rig:
            got: list[int] = []
            with pytest.raises(StageFailed, match="here"):
                await read_into(got, rig)
            assert got == list(range(n))
            await settled(rig)


async def read_into(got: list[int], rig: Rig) -> None:
    async with rig.open(request(live=True), numbers(100)) as chunks:
        async for chunk in chunks:
            got.append(data_of(chunk))  # noqa: PERF401 - kept when it raises


async def test_a_lost_worker_is_one_error_for_its_requests_and_none_for_others() -> None:
    async with rigged([inner("a", 0), inner("b", 1)], [FakeStage("c", 2)]) as rig:
        async with rig.open(request(live=True), numbers(10**6)) as chunks:
            await anext(chunks)
            link = rig.remotes[0].link
            assert link is not None
            link.close()
            with pytest.raises(ReplicaLost):
                async for _ in chunks:
                    pass
        with pytest.raises(StageUnavailable):
            await read(rig, numbers(3), live=True)
        await until(lambda: not rig.workers[1].runs)
        assert not any(pool.leased for pool in rig.pools.values())


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 4])
async def test_another_worker_need_not_host_the_same_stages(lost: int) -> None:
    """Of b and c, which one worker hosted, two go on with it; or one worker goes on with what two hosted."""
    layout = [
        [inner("a", 0)],
        [inner("a", 0)],
        [inner("b", 1), FakeStage("c", 2)],
        [inner("b", 1)],
        [FakeStage("c", 2)],
    ]
    for first in (layout, layout[::-1]):
        async with rigged(*first) as rig:
            async with asyncio.timeout(30), rig.open(request(live=True), numbers(200)) as chunks:
                got = [data_of(await anext(chunks)) for _ in range(20)]
                link = rig.remotes[lost].link
                assert link is not None
                link.close()
                got += [data_of(chunk) async for chunk in chunks]
            assert got == list(range(200))


async def test_a_replica_that_is_full_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.control.hops.RESUME_S", 0.05)
    async with rigged([FakeStage(slots=1)], [FakeStage(slots=1)]) as rig:
        async with (
            rig.open(request(id="1", live=True), numbers(10**6)) as one,
            rig.open(request(id="2", live=True), numbers(10**6)) as two,
        ):
            await anext(one)
            await anext(two)
            link = rig.remotes[0].link
            assert link is not None
            link.close()
            ends = await asyncio.gather(whole_for(one), whole_for(two), return_exceptions=True)
        assert [type(end) for end in ends if end] == [ReplicaLost]


async def whole_for(chunks: AsyncIterator[Chunk], wait_s: float = 0.5) -> None:
    """Read as long as that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            async for _ in chunks:
                pass


async def test_what_was_fed_is_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them a lost replica is the request's end, and the memory is given back."""
    monkeypatch.setattr("engine.control.hops.BYTES_REPLAYED", 4000)
    async with rigged([FakeStage()], [FakeStage()]) as rig, rig.open(request(live=True), numbers(10**6)) as chunks:
        for _ in range(100):
            await anext(chunks)
        for remote in rig.remotes:
            if remote.runs:
                assert remote.link is not None
                remote.link.close()
        with pytest.raises(ReplicaLost):
            async for _ in chunks:
                pass


async def test_a_stage_that_ends_early_does_not_hold_up_the_worker_before_it() -> None:
    def once(req: StageRequest) -> Result:
        req.done = True
        return []

    async with rigged([Source(500)], [FakeStage("b", 1, once)]) as rig:
        async with asyncio.timeout(30):
            assert await read(rig) == list(range(1, 501))
        await settled(rig)


class Held(FakeStage):
    """Ends its first request at once; of a second, it never takes the input."""

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        await asyncio.Event().wait()
        yield


async def test_an_ended_stage_before_a_slow_one_does_not_hold_up_the_worker_before_them() -> None:
    def once(req: StageRequest) -> Result:
        req.done = True
        return []

    async with rigged([Source(500)], [FakeStage("b", 1, once, emits=NOTHING), Held("c", 2)]) as rig:
        async with asyncio.timeout(30), rig.open(request()) as chunks:
            got = [data_of(await anext(chunks)) for _ in range(500)]
        assert got == list(range(1, 501))
        await settled(rig)


@pytest.mark.seed("A2.9", "A4.14")
async def test_no_progress_is_stalled_and_progress_is_not() -> None:
    async with rigged([FakeStage()], stall_s=0.4) as rig:

        async def slowly(n: int, wait_s: float) -> AsyncGenerator[Chunk]:
            for i in range(n):
                await asyncio.sleep(wait_s)
                yield x(i)

        assert await read(rig, slowly(5, 0.1), live=True) == list(range(5))
        with pytest.raises(Stalled, match="progress"):
            await read(rig, slowly(1, 60), live=True)
        await settled(rig)


async def test_a_request_that_waits_for_a_slot_is_not_stalled() -> None:
    """The requests that hold the slots make progress, each for longer than ``stall_s`` in all."""
    async with rigged([FakeStage(slots=1)], stall_s=30) as rig:
        clock, spoken = LoopClock(), asyncio.Queue[Chunk | None]()

        async def speech() -> AsyncGenerator[Chunk]:
            while (chunk := await spoken.get()) is not None:
                yield chunk

        async with rig.open(request(), speech()) as first, asyncio.TaskGroup() as tasks:
            await until(lambda: rig.pools["a"].leased == 1)
            second = tasks.create_task(read(rig, numbers(3)))
            await until(lambda: rig.pools["a"].waiting == 1)
            for i in range(4):
                spoken.put_nowait(x(i))
                assert data_of(await anext(first)) == i
                clock.passed_s += 20
                await turns()
            spoken.put_nowait(None)
            assert [chunk async for chunk in first] == []
            assert await second == [0, 1, 2]
        await settled(rig)


class Busy(FakeStage):
    """Steps ``n`` times for its one chunk; each step takes ``step_s`` seconds of the event loop's clock."""

    def __init__(self, n: int, step_s: float) -> None:
        super().__init__(act=self.work, batch=1)
        self.n, self.step_s, self.clock = n, step_s, LoopClock()

    def work(self, req: StageRequest) -> Result:
        self.clock.passed_s += self.step_s
        req.pending.clear()
        req.state = (req.state or 0) + 1
        req.done, req.needs_input = req.state == self.n, False
        return [x(req.state)] if req.done else []


@pytest.mark.seed("A4.14")
async def test_a_stage_that_steps_and_gives_nothing_yet_is_no_standstill() -> None:
    """As a long prefill does, or diffusion: progress is a step, not a chunk."""
    async with rigged([Busy(600, 0.1)], stall_s=30, beat_s=1) as rig:
        assert await read(rig, numbers(1)) == [600]
        await settled(rig)


@pytest.mark.seed("A4.14")
async def test_a_request_that_waits_for_its_turn_is_no_standstill() -> None:
    """Its worker steps all the time, for a request that came before it."""
    async with rigged([Busy(600, 0.1)], stall_s=30, beat_s=1) as rig:
        rig.workers[0]._scheduler.schedule = "arrival"
        first, second = asyncio.create_task(read(rig, numbers(1))), asyncio.create_task(read(rig, numbers(1), id="s"))
        assert [await first, await second] == [[600], [600]]
        await settled(rig)


@pytest.mark.seed("A4.14")
async def test_a_stage_that_steps_in_a_circle_ends_its_request_and_says_which_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.worker.loop.run.MOST_SILENT_STEPS", 100)
    async with rigged([Busy(100, 0.0)]) as rig:
        assert await read(rig, numbers(1)) == [100]
    async with rigged([Busy(101, 0.0)]) as rig:
        with pytest.raises(Stalled, match="a made 100 steps without input or output"):
            await read(rig, numbers(1))
        await settled(rig)


async def test_a_stage_that_takes_its_input_may_be_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ears are that hear nothing for minutes."""
    monkeypatch.setattr("engine.worker.loop.run.MOST_SILENT_STEPS", 100)

    def swallow(req: StageRequest) -> Result:
        if req.pending:
            req.pending.popleft()
        else:
            req.done = True
        return []

    async with rigged([FakeStage(act=swallow)]) as rig:
        assert await read(rig, numbers(500), live=True) == []
        await settled(rig)


async def test_an_answer_that_nobody_reads_is_ended_and_says_so() -> None:
    async with rigged([Source(10**9)], stall_s=0.05) as rig, rig.open(request()) as chunks:
        await until(lambda: not rig.idle)
        await until(lambda: rig.idle)
        with pytest.raises(Stalled, match="read"):
            async for _ in chunks:
                pass


async def test_progress_at_the_very_moment_of_the_stall_is_no_other_error() -> None:
    """A reschedule of a timeout that has just expired raises RuntimeError."""

    class Blocking(Source):
        def count(self, req: StageRequest) -> Result:
            if req.state == 3:
                time.sleep(0.06)  # the stall timer and the next chunk fall into one turn
            return super().count(req)

    for _ in range(5):
        async with rigged([Blocking(10**9)], stall_s=0.05) as rig, rig.open(request()) as chunks:
            await until(lambda: not rig.idle)
            await until(lambda: rig.idle)
            with pytest.raises(Stalled):
                await whole(chunks)


@pytest.mark.seed("A4.12")
async def test_a_slow_reader_stops_the_stages() -> None:
    stage = Source(10**9)
    async with rigged([stage]) as rig, rig.open(request()) as chunks:
        await until(lambda: len(stage.batches) >= messages.CREDIT - 1)
        await turns(300)
        made = len(stage.batches)
        await turns(300)
        assert len(stage.batches) == made <= messages.CREDIT + messages.GRANT
        for _ in range(50):
            await anext(chunks)
        await turns(300)
        assert made + 30 <= len(stage.batches) <= made + 70


async def test_a_bug_of_ours_is_an_engine_error_too_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with rigged([FakeStage()]) as rig:
        monkeypatch.setattr(rig.remotes[0], "run", lambda *_: 1 / 0)
        with caplog.at_level(logging.ERROR), pytest.raises(EngineError, match="Internal error"):
            await read(rig)
        assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("lead_s", [float("nan"), -1.0])
async def test_a_lead_that_is_no_time_is_refused(lead_s: float) -> None:
    """Nothing is more, or less, than what is no number: such a request had stepped never, and held its slots."""
    async with rigged([FakeStage(emits=frozenset({"audio"}))]) as rig:
        with pytest.raises(RequestError, match="lead_s: must be"):
            await read(rig, lead_s=lead_s)
        await settled(rig)


BAD_NUMBERS: list[dict[str, Any]] = [
    {"sampling": Sampling(greedy=1e300)},  # pyright: ignore[reportArgumentType]
    {"sampling": Sampling(temperature="7")},  # pyright: ignore[reportArgumentType]
    {"sampling": Sampling(temperature=float("nan"))},
    {"sampling": Sampling(seed=None)},  # pyright: ignore[reportArgumentType]
    {"max_audio_s": None}, {"lead_s": "7"}, {"speed": float("nan")}, {"max_text_tokens": 1.5},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=str)
async def test_numbers_of_another_type_are_refused(bad: dict[str, Any]) -> None:
    """In one step with others a number for yes or no changed what those drew."""
    async with rigged([FakeStage(emits=frozenset({"audio"}))]) as rig:
        with pytest.raises(RequestError):
            await read(rig, **bad)
        await settled(rig)


async def test_a_request_that_cannot_be_looked_at_ends_with_one_error(caplog: pytest.LogCaptureFixture) -> None:
    """Its error was nobody's, and its reader waited for ever."""
    bad: Any = None
    async with rigged([FakeStage(emits=frozenset({"audio"}))]) as rig:
        with pytest.raises(EngineError):
            await asyncio.wait_for(read(rig, wants=bad), 20)
        await settled(rig)
    assert "TypeError" in caplog.text


@pytest.mark.parametrize("apart", [False, True])
async def test_a_thinker_that_never_ends_stops_with_the_voice_that_was_cut_off(apart: bool) -> None:
    """And the last chunk says that the answer was cut."""
    written = 0

    def write(req: StageRequest) -> Result:
        nonlocal written
        written += 1
        req.pending.clear()
        req.needs_input = False
        return [Text("word ", 5 * (written - 1))]

    def speak(req: StageRequest) -> Result:
        while req.pending:
            req.pending.popleft()
            req.state = (req.state or 0) + 1
        req.cut = req.done = (req.state or 0) >= 100
        return []

    class Begins(FakeStage):
        async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
            yield "start"

    text = kinds(Text)
    stages = [
        Begins("thinker", 0, write, emits=text, feeds=text),
        FakeStage("voice", 1, speak, takes=text, emits=kinds(Audio), feeds=NOTHING, answers=False),
    ]
    async with rigged(*([[stage] for stage in stages] if apart else [stages])) as rig:
        async with asyncio.timeout(20), rig.open(request(), None) as chunks:
            got = [chunk async for chunk in chunks]
        pieces = sum(isinstance(chunk, Text) for chunk in got)
        assert 100 <= pieces < 1000
        assert got[-1] == Usage(output_tokens=pieces, finish="length")
        await settled(rig)
