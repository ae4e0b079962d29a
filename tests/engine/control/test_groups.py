"""Requests with companions: all roles on one replica, one answer, one end; what companions give never leaves."""

from __future__ import annotations

import ast
import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import engine.worker.loop.role_group
import engine.worker.stage_request
from engine.chunk import Chunk, Usage
from engine.control.chunks import Chunks
from engine.core import Sampling
from engine.errors import EngineError, ReplicaLost, RequestError, StageFailed, Stalled
from engine.worker.stage_request import StageRequest
from tests.engine.control.test_orchestrator import Source
from tests.engine.fakes import FakeStage, LoopClock, Result, Rig, data_of, echo, request, rigged, turns, until, x

NOTHING = frozenset[str]()
BOTH = ("main", "negative")
THREE = ("main", "negative", "empty")
FOUR = (*THREE, "silent")


class Guided(FakeStage):
    """Emits main - companion for each row: what guidance does to logits. A companion's rows are halved."""

    def __init__(self, **info: Any) -> None:
        super().__init__("g", 0, group="guided", **info)
        self.seen: list[list[str]] = []
        self.aside = 0  # what companions give, which must not leave

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            yield data_of(chunk) if req.role == "main" else data_of(chunk) / 2

    def step(self, reqs: Any) -> Any:
        self.seen.append([req.role for req in reqs])
        return [self.guide(req) for req in reqs]

    def guide(self, req: StageRequest) -> Result:
        if req.role != "main":
            return [x("never")] if self.aside else []
        rows = {role: one.pending.popleft() for role, one in req.roles.items() if one.pending}
        if not rows:
            req.done = req.ended
            return []
        return [x(rows["main"] - sum(value for role, value in rows.items() if role != "main"))]


class Joined(FakeStage):
    """Each role gives its number of chunks, one a step; ``order`` says whose request must wait for whose end."""

    def __init__(self, gives: dict[str, int], waits: tuple[str, ...] = (), **info: Any) -> None:
        super().__init__("j", 0, self.count, group="joined", emits=NOTHING, **info)
        self.gives, self.waits = gives, waits

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        req.state = 0
        before = self.waits[: self.waits.index(req.role)] if req.role in self.waits else ()
        await until(lambda: all(req.roles[role].done for role in before))
        yield "start"

    def count(self, req: StageRequest) -> Result:
        req.pending.clear()
        req.needs_input = False
        if req.state == self.gives[req.role]:
            req.done = True
            return []
        req.state += 1
        return [x(f"{req.role}{req.state}")]


class Taker(FakeStage):
    """Passes on what it was fed, kinds and all."""

    def __init__(self) -> None:
        super().__init__("t", 1, emits=frozenset({"bundle", "x"}))


async def numbers(n: int) -> AsyncGenerator[Chunk]:
    for i in range(n):
        yield x(float(i))
        await asyncio.sleep(0)


async def read(rig: Rig, inputs: Any = None, **fields: Any) -> list[Any]:
    async with rig.open(request(**fields), inputs) as chunks:
        return [data_of(chunk) async for chunk in chunks]


async def settled(rig: Rig) -> None:
    await until(lambda: rig.idle)
    for worker in rig.workers:
        assert worker.free == {name: stage.info.slots for name, stage in worker.stages.items()}


def of(bundle: Any) -> dict[str, list[str]]:
    return {role: [data_of(chunk) for chunk in chunks] for role, chunks in bundle.items()}


@pytest.mark.seed("A0.2", "A0.5", "A0.10", "A2.7", "A2.18")
async def test_guided_roles_step_together_and_give_one_answer() -> None:
    stage = Guided(emits=NOTHING)
    stage.aside = 1
    async with rigged([stage], [Taker()]) as rig:
        got = await read(rig, numbers(40), live=True, roles=BOTH)
        assert got == [i / 2 for i in range(40)]
        assert all(seen == list(BOTH) for seen in stage.seen)
        await settled(rig)


@pytest.mark.seed("A0.10")
async def test_what_a_companion_counts_is_not_counted_to_the_client() -> None:
    """Its usage is none of the answer's, though both are of a kind that the client gets."""

    class Counting(Guided):
        def guide(self, req: StageRequest) -> Result:
            result = super().guide(req)
            return (
                [Usage(output_tokens=7 if req.role == "main" else 1000)] if req.done or req.role != "main" else result
            )

    async with rigged([Counting(emits=frozenset({"x", "usage"}))]) as rig:
        got = await read(rig, numbers(3), live=True, roles=BOTH)
        assert [one for one in got if isinstance(one, Usage)] == [Usage(output_tokens=7)]
        await settled(rig)


@pytest.mark.seed("A0.3")
async def test_a_request_without_companions_is_a_group_of_one() -> None:
    async with rigged([Guided()]) as rig:
        assert await read(rig, numbers(3), live=True) == [0, 1, 2]
    async with rigged([Joined({"main": 3})], [Taker()]) as rig:
        assert await read(rig) == ["main1", "main2", "main3"]


async def test_groups_and_others_share_batches() -> None:
    stage = Guided()
    async with rigged([stage]) as rig:
        roles = [BOTH, ("main",), THREE]
        asked = [read(rig, numbers(30), id=str(i), live=True, roles=r) for i, r in enumerate(roles)]
        answers = await asyncio.gather(*asked)
        assert answers == [[i / 2 for i in range(30)], list(range(30)), [0.0] * 30]
        assert all(len(seen) <= 5 for seen in stage.seen)
        await settled(rig)


@pytest.mark.seed("A0.4", "A0.5", "A0.6", "A0.9")
@pytest.mark.parametrize("order", list(itertools.permutations(FOUR)), ids="-".join)
@pytest.mark.parametrize("apart", [False, True])
async def test_in_whatever_order_they_end_the_next_stage_gets_one_bundle(order: tuple[str, ...], apart: bool) -> None:
    counts = {"main": 3, "negative": 1, "empty": 2, "silent": 1}
    stage = Joined(counts, order)
    async with rigged(*([[stage], [Taker()]] if apart else [[stage, Taker()]])) as rig:
        got = await read(rig, roles=FOUR)
        assert [of(bundle) for bundle in got] == [
            {role: [f"{role}{n}" for n in range(1, count + 1)] for role, count in counts.items()}
        ]
        await settled(rig)


@pytest.mark.seed("A0.9")
async def test_a_role_that_gave_nothing_is_named_and_nothing_leaves() -> None:
    async with rigged([Joined({"main": 2, "negative": 0}), Taker()]) as rig:
        with pytest.raises(StageFailed, match="no output for negative"):
            await read(rig, roles=BOTH)
        await settled(rig)


class Hanging(Joined):
    """Its companion never begins."""

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        req.state = 0
        if req.role == "negative":
            await asyncio.Event().wait()
        yield "start"


@pytest.mark.seed("A0.14")
async def test_a_companion_that_hangs_is_named_at_the_deadline() -> None:
    async with rigged([Hanging({"main": 2, "negative": 1})], [Taker()], stall_s=0.2) as rig:
        with pytest.raises(Stalled, match="j waits for negative"):
            await read(rig, roles=BOTH)
        await settled(rig)


@pytest.mark.seed("A0.14")
async def test_a_guided_request_whose_companion_hangs_ends_at_the_deadline() -> None:
    class Stuck(Guided):
        async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
            if req.role == "negative":
                await asyncio.Event().wait()
            async for row in super().adapt(req, inputs):
                yield row

    async with rigged([Source(5, "s", -1, emits=frozenset({"x"}))], [Stuck()], stall_s=0.2) as rig:
        with pytest.raises(Stalled):
            await read(rig, roles=BOTH)
        await settled(rig)


@pytest.mark.seed("A0.14")
async def test_no_other_output_moves_the_deadline_of_a_companion() -> None:
    """The client reads on and on what another stage gives, a second of the clock for each chunk."""
    clock = LoopClock()

    async def read_on(chunks: Chunks) -> None:
        async for _ in chunks:
            clock.passed_s += 1
            assert clock.passed_s < 300

    source = Source(10**9, "s", -1, emits=frozenset({"x"}), feeds=frozenset({"y"}))
    hanging = Hanging({"main": 2, "negative": 1}, takes=frozenset({"y"}))
    async with rigged([source], [hanging], [Taker()]) as rig:
        async with rig.open(request(roles=BOTH)) as chunks:
            await until(lambda: "j.done" in chunks.timeline.marks)
            with pytest.raises(Stalled, match="j waits for negative"):
                await read_on(chunks)
        await settled(rig)


@pytest.mark.seed("A0.15")
@pytest.mark.parametrize("kind", ["error", "break"])
async def test_a_companions_error_is_the_requests_at_once(kind: str) -> None:
    class Failing(Joined):
        def count(self, req: StageRequest) -> Result:
            if req.role == "negative":
                if kind == "break":
                    raise ZeroDivisionError
                return StageFailed("here")
            return []

    async with rigged([Failing({"main": 2, "negative": 1})], [Taker()]) as rig:
        with pytest.raises(StageFailed):
            await read(rig, roles=BOTH)
        await settled(rig)


@pytest.mark.seed("A0.15", "A0.17")
async def test_a_lost_replica_takes_all_roles_and_the_request_goes_on_elsewhere() -> None:
    async with rigged([Guided()], [Guided()]) as rig:
        async with rig.open(request(live=True, roles=BOTH), numbers(100)) as chunks:
            got = [data_of(await anext(chunks)) for _ in range(9)]
            for remote in rig.remotes:
                if remote.runs:
                    assert remote.link is not None
                    remote.link.close()
            got += [data_of(chunk) async for chunk in chunks]
        assert got == [i / 2 for i in range(100)]


@pytest.mark.seed("A0.15")
async def test_without_another_replica_the_loss_is_the_requests() -> None:
    async with rigged([Guided()]) as rig, rig.open(request(live=True, roles=BOTH), numbers(10**6)) as chunks:
        await anext(chunks)
        link = rig.remotes[0].link
        assert link is not None
        link.close()
        with pytest.raises(ReplicaLost):
            async for _ in chunks:
                pass


@pytest.mark.seed("A0.17", "A3.2", "A3.15")
async def test_all_roles_of_a_request_are_on_one_replica() -> None:
    stages = [Guided(slots=8), Guided(slots=8)]
    async with rigged([stages[0]], [stages[1]]) as rig:
        for first in (0, 50):
            ids = range(first, first + 50)
            await asyncio.gather(*(read(rig, numbers(3), id=str(i), live=True, roles=THREE) for i in ids))
        for stage in stages:
            for seen in stage.seen:
                assert len(set(Counter(seen).values())) == 1, "a batch has each role as often as the others"
        assert all(stage.seen for stage in stages)
        await settled(rig)


@pytest.mark.seed("A0.17")
async def test_roles_take_a_slot_each_and_nobody_waits_for_ever() -> None:
    async with rigged([Guided(slots=4)]) as rig:
        roles = [BOTH, THREE, ("main",), THREE, BOTH]
        asked = [read(rig, numbers(5), id=str(i), live=True, roles=r) for i, r in enumerate(roles)]
        async with asyncio.timeout(20):
            await asyncio.gather(*asked)
        with pytest.raises(RequestError, match="5 roles, but g has only 4 slots"):
            await read(rig, numbers(1), live=True, roles=("main", *"abcd"))
        await settled(rig)


@pytest.mark.seed("A0.1", "A0.8", "A0.11", "A0.13")
async def test_roles_are_known_with_the_request_each_once_in_order() -> None:
    """There is no registering, no id of a companion, and nothing that two requests share: roles are a frozen field."""
    async with rigged([Guided()]) as rig:
        for roles in ((), ("negative",), ("main", "a", "a"), ("negative", "main")):
            with pytest.raises(RequestError, match="roles: must start with main"):
                await read(rig, numbers(1), live=True, roles=roles)
        assert await read(rig, numbers(2), live=True, roles=BOTH) == [0, 0.5]
        shared = request(live=True, roles=BOTH)
        with pytest.raises(AttributeError):
            shared.roles = ()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.seed("A0.11")
async def test_requests_that_share_their_parameters_do_not_see_each_others_roles() -> None:
    """In the same batches of one stage: one object holds the sampling of both, another the names of their roles."""
    seen: list[tuple[str, ...]] = []

    class Looking(Guided):
        def guide(self, req: StageRequest) -> Result:
            seen.append(tuple(one.request.id for one in req.roles.values()))
            return super().guide(req)

    shared: dict[str, Any] = {"sampling": Sampling(guidance=2), "roles": BOTH, "live": True}
    async with rigged([Looking()]) as rig:
        answers = await asyncio.gather(*(read(rig, numbers(20), id=id, **shared) for id in "ab"))
        assert answers == [[i / 2 for i in range(20)]] * 2
        assert {one for one in seen if one != ("a", "a")} == {("b", "b")}
        await settled(rig)


@pytest.mark.seed("A0.12", "A0.18", "A4.17")
async def test_left_at_any_turn_all_roles_are_left_and_nothing_stays() -> None:
    """What of a companion is still under way finds no run, and makes none."""
    for stage in (Guided(), Joined(dict.fromkeys(THREE, 10**6))):
        async with rigged([stage], [Taker()]) as rig:
            for after in range(0, 40, 3):
                with suppress(EngineError):
                    async with rig.open(request(live=True, roles=THREE), numbers(1000)):
                        await turns(after)
                assert not any(pool.leased for pool in rig.pools.values())
            await settled(rig)


@pytest.mark.seed("A0.19")
@pytest.mark.parametrize(
    "module", [engine.worker.loop.role_group, engine.worker.stage_request], ids=lambda module: module.__name__
)
def test_a_group_is_pure(module: ModuleType) -> None:
    """It lives in the engine's worker, reads no clock and does no I/O."""
    assert module.__file__
    tree = ast.parse(Path(module.__file__).read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not names & {"time", "datetime", "socket", "os", "engine.ipc.messages"}
    assert all(not name.startswith("app") for name in names)


async def test_guidance_where_no_stage_is_guided_is_one_clear_error() -> None:
    guided: dict[str, Any] = {"live": True, "roles": BOTH, "sampling": Sampling(guidance=2)}
    async with rigged([FakeStage("a", 0, echo)], [Taker()]) as rig:
        with pytest.raises(RequestError, match="guidance: this model supports no guidance; set it to 1, not 2"):
            await read(rig, numbers(3), **guided)
        await settled(rig)
    async with rigged([Guided()]) as rig:
        assert await read(rig, numbers(3), **guided) == [0, 0.5, 1]


async def test_echo_stages_ignore_roles() -> None:
    async with rigged([FakeStage("a", 0, echo)]) as rig:
        assert await read(rig, numbers(3), live=True, roles=THREE) == [0, 1, 2]
        await settled(rig)
