"""A request that cost a replica is given to no other; one that may have is tried once more, alone; others go on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from engine.control.launchers.local import crashed
from engine.errors import EngineError, ReplicaLost
from engine.ipc import messages
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, Result, Rig, data_of, echo, fed, opened, request, rigged, until, working, x


async def test_a_worker_tells_what_it_does_for_the_first_time_before_it_does_it() -> None:
    told: list[tuple[str, ...]] = []

    def act(req: StageRequest) -> Result:
        told.append([message.runs for message in desk.sent if isinstance(message, messages.Trying)][-1])
        return echo(req)

    async with working(FakeStage(act=act)) as desk:
        desk.put(opened("a"), opened("b"), *fed("a", 1, 2), *fed("b", 1))
        await until(lambda: len(told) >= 3)
        desk.put(opened("c"), *fed("c", 1), *fed("a", 3))
        await until(lambda: len(told) >= 5)
        assert told[:2] == [("a", "b")] * 2
        assert told[2] == (), "what has gone well once is no suspect"
        assert ("c",) in told[3:]


class Deadly(FakeStage):
    """The replica is lost in the first step of each request whose text begins with bad."""

    def __init__(self, lose: Callable[[], None]) -> None:
        super().__init__(act=self.die)
        self._lose = lose
        self.seen: set[str] = set()

    def die(self, req: StageRequest) -> Result:
        self.seen.add(req.request.id)
        if req.request.id.startswith("bad") and req.pending:
            self._lose()
        return echo(req)


async def lost_with(
    workers: int, hung: bool, crashed: bool
) -> tuple[dict[str, list[int] | EngineError], list[set[str]]]:
    """What a bad and two good requests are given, all of them on the first worker; and whom each worker has seen."""
    rig: Rig

    async def ended() -> bool:
        return crashed

    def lose(number: int) -> None:
        remote = rig.remotes[number]
        remote.receive(messages.Trying((f"bad/{list(remote._runs)[-1].rpartition('/')[2]}",)))
        remote.hung, remote.crashed = hung, ended
        remote.fence()

    stages = [Deadly(lambda number=number: lose(number)) for number in range(workers)]
    results: dict[str, list[int] | EngineError] = {}

    async def read(id: str, gate: asyncio.Event) -> None:
        async def inputs():
            yield x(1)
            await gate.wait()
            yield x(2)

        try:
            async with rig.open(request(id=id, live=True), inputs()) as chunks:
                results[id] = [data_of(chunk) async for chunk in chunks]
        except EngineError as error:
            results[id] = error

    async with rigged(*([stage] for stage in stages)) as rig:
        pool = rig.pools["a"]
        pool._choose = lambda members: members[0]  # all of them where the first is
        gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for id in ("good", "well"):
                group.create_task(read(id, gate))
            await until(lambda: stages[0].seen >= {"good", "well"})
            group.create_task(read("bad", gate))
            await until(lambda: "bad" in results)
            gate.set()
    return results, [stage.seen for stage in stages]


@pytest.mark.parametrize(("hung", "crashed"), [(True, False), (False, True)])
async def test_a_request_that_cost_a_replica_is_not_given_to_the_next_one(hung: bool, crashed: bool) -> None:
    results, seen = await lost_with(2, hung, crashed)
    assert isinstance(results["bad"], ReplicaLost)
    assert "it is not retried" in str(results["bad"])
    assert results["good"] == results["well"] == [1, 2]
    assert seen[1] == {"good", "well"}


async def test_one_that_may_have_is_tried_once_more_and_others_lose_no_life_by_it() -> None:
    results, seen = await lost_with(3, hung=False, crashed=False)
    assert isinstance(results["bad"], ReplicaLost)
    assert "the second one during this request" in str(results["bad"])
    assert results["good"] == results["well"] == [1, 2], "two replicas were lost under them, and it was another's fault"
    assert seen[2] == {"good", "well"}


async def test_without_knowing_whose_fault_it_was_the_good_are_lost_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: so it was."""

    async def nobody(self: object, host: object) -> str:
        return "nobody"

    monkeypatch.setattr("engine.control.recovery.RequestRecovery._blame", nobody)
    results, seen = await lost_with(3, hung=True, crashed=True)
    assert isinstance(results["good"], ReplicaLost)
    assert "bad" in seen[1]


@pytest.mark.parametrize(
    ("sign", "by_itself"), [(signal.SIGSEGV, True), (signal.SIGABRT, True), (signal.SIGKILL, False), (0, True)]
)
async def test_a_process_that_was_killed_has_not_crashed(sign: int, by_itself: bool) -> None:
    end = f"import os, sys; os.kill(os.getpid(), {int(sign)}); sys.exit(3)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", end)
    ended: Awaitable[bool] = crashed(process)
    assert await ended == by_itself
