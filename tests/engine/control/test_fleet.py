"""The workers of an engine over time: lost ones come back, stuck ones go, and changes cost no request a word."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from typing import Any

import msgspec
import psutil
import pytest

from engine import (
    Engine,
    EngineError,
    EngineSpec,
    Message,
    Request,
    RequestError,
    StageUnavailable,
    TextPart,
    WorkerSpec,
)
from engine.chunk import Text
from engine.control.fleet import Fleet
from engine.control.launchers.inline import InlineLauncher
from engine.control.membership import Loss
from engine.control.replica import RemoteWorker
from engine.core import Remembered, StageInfo
from engine.deployment.config import ChunkSpec, ClusterSpec, HeartbeatSpec, parse_config
from engine.errors import ConfigError, ReplicaLost, WeightsError
from engine.ipc.messages import Beat, Emit, Task
from engine.worker.models.script import ScriptThinker
from engine.worker.process import stage_loader as host
from engine.worker.stage import StageConfig
from tests.engine.fakes import data_of, turns, until

STAGES = ("ears", "thinker", "talker", "code2wav")


def spec(replicas: int = 1, launcher: str = "inline", **fields: object) -> EngineSpec:
    workers = (WorkerSpec(stages=STAGES, replicas=replicas),)
    return replace(EngineSpec(model="script", workers=workers, launcher=launcher), **fields)


def asked(text: str, id: str = "r", session: str = "s") -> Request:
    return Request(id=id, session=session, messages=(Message("user", (TextPart(text),)),))


async def answer(engine: Engine, text: str, **request: str) -> str:
    async with engine.open(asked(text, **request)) as chunks:
        return "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)])


def workers(engine: Engine) -> dict[str, int]:
    """Who is there: incarnations by name."""
    return {replica.replica: replica.incarnation for replica in engine.replicas()}


def remote(engine: Engine, name: str = "worker0.0"):
    worker = engine._fleet.placements[name].worker
    assert worker is not None
    return worker


def process(engine: Engine, name: str = "worker0.0") -> psutil.Process:
    return psutil.Process(remote(engine, name).hello.result().pid)


@pytest.mark.seed("A1.7")
async def test_a_lost_worker_comes_back_as_another_incarnation() -> None:
    async with Engine(spec(empty_s=10.0)) as engine:
        remote(engine).fence()
        assert engine.missing == STAGES
        assert not engine.ready
        assert await answer(engine, "say: back again") == "back again"
        assert workers(engine) == {"worker0.0": 2}
        assert engine.ready


@pytest.mark.seed("A1.1")
async def test_the_list_of_replicas_tells_state_and_load_and_is_a_snapshot() -> None:
    async with Engine(spec(replicas=2)) as engine:
        before = engine.replicas()
        assert [one.stage for one in before] == [stage for stage in STAGES for _ in range(2)]
        assert {(one.stage, one.replica, one.incarnation) for one in before} == {
            (stage, f"worker0.{n}", 1) for stage in STAGES for n in range(2)
        }, "whichever was ready first"
        assert {(one.state, one.leased, one.slots, one.queue) for one in before} == {("up", 0, 16, 0)}
        async with engine.open(asked("long 400")) as chunks:
            await anext(chunks)
            (host,) = {replica.host for replica in chunks.hosts}
            host.receive(Beat(host.id, 1, {"talker": 7}, {}))
            retiring = asyncio.create_task(engine._fleet.retire(host))
            await turns()
            now = [one for one in engine.replicas() if one.stage == "talker"]
            there = f"{host.id.partition('#')[0]}"
            assert [(one.state, one.leased, one.queue) for one in now if one.replica == there] == [("draining", 1, 7)]
            assert [(one.state, one.leased, one.queue) for one in now if one.replica != there] == [("up", 0, 0)]
        await retiring
        assert {(one.state, one.leased) for one in before} == {("up", 0)}, "what was listed stays as it was"
        with pytest.raises(AttributeError):
            before[0].state = "draining"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.seed("A1.9", "A1.15")
async def test_a_worker_that_is_lost_as_soon_as_it_is_ready_never_joins() -> None:
    """Both come in one turn of the loop: the loss counts, for it came last."""
    async with Engine(spec()) as engine:
        start = engine._launcher.start

        async def dying(task: Task, worker: RemoteWorker) -> None:
            await start(task, worker)
            await asyncio.wait([worker.hello])
            worker.fence()

        engine._launcher.start = dying
        with pytest.raises(ReplicaLost, match=r"worker0\.1#1 ended as soon as it was ready"):
            await engine.scale("talker", 2)
        assert workers(engine) == {"worker0.0": 1}
        assert await answer(engine, "say: as before") == "as before"


@pytest.mark.seed("A1.13")
async def test_who_needs_a_stage_that_nobody_hosts_waits_a_bounded_time() -> None:
    async with Engine(spec(empty_s=0.05)) as engine:
        placement = engine._fleet.placements["worker0.0"]
        placement.wanted = False  # nobody brings it back
        remote(engine).fence()
        began_s = time.monotonic()
        with pytest.raises(StageUnavailable, match="no replica of thinker"):
            await answer(engine, "hello")
        assert time.monotonic() - began_s > 0.04


@pytest.mark.seed("A1.13")
async def test_a_stage_whose_last_worker_drains_is_missing() -> None:
    """A worker from elsewhere that is told to end has nobody to stand in for it."""
    async with Engine(spec(empty_s=0.05)) as engine:
        async with engine.open(asked("long 400")) as chunks:
            await anext(chunks)
            retiring = asyncio.create_task(engine._fleet.retire(remote(engine)))
            await turns()
            assert engine.missing == STAGES
            assert not engine.ready
            with pytest.raises(StageUnavailable, match="no replica of thinker"):
                await answer(engine, "hello")
            assert not retiring.done()
        await retiring


@pytest.mark.seed("A1.7")
async def test_what_a_lost_worker_still_says_is_not_heard() -> None:
    async with Engine(spec(replicas=2)) as engine:
        lost = remote(engine)
        lost.fence()
        lost.receive(Beat(lost.id, 1000, {"talker": 1000}, {"talker": 1.0}))
        assert "worker0.0" not in workers(engine)
        assert all(replica.queue == 0 for replica in engine.replicas())


@pytest.mark.seed("A1.4")
async def test_heartbeats_alone_tell_the_pools_how_long_the_queues_are() -> None:
    async with Engine(spec()) as engine:
        worker = remote(engine)
        kept = Remembered(asked=9, reused=4, hits=1, evicted=0, held_bytes=100)
        worker.receive(Beat(worker.id, 1, {"talker": 7, "no such stage": 3}, {"talker": 0.25}, None, {"talker": kept}))
        (talker,) = [replica for replica in engine.replicas() if replica.stage == "talker"]
        assert (talker.queue, talker.step_ms, talker.remembered) == (7, 250.0, kept)
        assert [replica.remembered for replica in engine.replicas() if replica.stage == "thinker"] == [None]


async def test_marks_of_a_machine_with_another_clock_are_told_in_ours() -> None:
    async with Engine(spec()) as engine:
        worker = remote(engine)
        told = worker.receive
        ahead_s = 5000.0

        def elsewhere(message: object) -> None:
            """As if its machine had been running for longer."""
            match message:
                case Emit(marks=marks) if marks:
                    there = {name: at_s + ahead_s for name, at_s in marks.items()}
                    told(msgspec.structs.replace(message, marks=there))
                case Beat():
                    told(msgspec.structs.replace(message, at_s=(message.at_s or 0) + ahead_s))
                case _:
                    told(message)  # pyright: ignore

        async with engine.open(asked("say: at the same time", "before")) as chunks:
            async for _ in chunks:
                pass
        assert chunks.ledger is not None
        worker.link.peer.peer._receive = elsewhere  # pyright: ignore
        await until(lambda: worker.behind_s < -1)
        async with engine.open(asked("say: at the same time", "after")) as late:
            async for _ in late:
                pass
        assert late.ledger is not None
        assert abs(late.ledger.ttfa_ms - chunks.ledger.ttfa_ms) < ahead_s * 1000 / 2


async def test_a_worker_that_beats_and_makes_no_step_is_replaced() -> None:
    async with Engine(spec(heartbeat=HeartbeatSpec(interval_s=0.02, timeout_s=0.2))) as engine:
        worker = remote(engine)
        worker_beats = asyncio.create_task(_stuck(worker))
        await until(lambda: worker.gone.is_set())
        worker_beats.cancel()
        await asyncio.wait([worker_beats])
        await until(lambda: engine.ready)
        assert workers(engine) == {"worker0.0": 2}


async def _stuck(worker: object) -> None:
    """Beats that tell of work and of no step, more often than the worker's own."""
    worker.on_beat = lambda beat, hear=worker.on_beat: hear(Beat(beat.worker, 1, {"talker": 1}, {}))  # pyright: ignore
    await asyncio.Event().wait()


@pytest.mark.bench
@pytest.mark.seed("A3.8")
async def test_a_stopped_process_is_fenced_within_a_second_and_replaced() -> None:
    async with Engine(spec(launcher="local", empty_s=20.0)) as engine:
        worker = remote(engine)
        os.kill(process(engine).pid, signal.SIGSTOP)
        began_s = time.monotonic()
        await worker.gone.wait()
        fenced_s = time.monotonic() - began_s
        assert await answer(engine, "say: another one") == "another one"
        assert workers(engine) == {"worker0.0": 2}
    assert fenced_s < 1.5  # 1 s, and what a busy machine adds; benchmarks/losses.py holds it to the bar


async def test_beats_that_came_while_the_server_was_held_up_are_heard_before_it_judges() -> None:
    """For longer than anybody may be silent, and for less than what excuses everybody."""
    async with Engine(spec(heartbeat=HeartbeatSpec(interval_s=0.2, timeout_s=0.4))) as engine:
        worker, heard = remote(engine), asyncio.Event()
        hear = worker.on_beat

        def told(beat: Beat) -> None:
            hear(beat)
            heard.set()

        worker.on_beat = told
        await heard.wait()
        assert engine._fleet._membership.due_s < time.monotonic() + 0.5, "it looks again when this beat is too old"
        time.sleep(0.5)  # noqa: ASYNC251 - the loop is what is held up
        await turns(20)
        assert workers(engine) == {"worker0.0": 1}


@pytest.mark.seed("A1.21")
async def test_while_nobody_watches_over_the_workers_requests_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "_watch", lambda self: asyncio.Event().wait())
    async with Engine(spec(heartbeat=HeartbeatSpec(interval_s=0.01, timeout_s=0.02))) as engine:
        await asyncio.sleep(0.1)
        assert await answer(engine, "say: as ever") == "as ever"
        assert workers(engine) == {"worker0.0": 1}


@pytest.mark.seed("A1.21")
async def test_a_watch_that_fails_ends_no_request_and_watches_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(spec(heartbeat=HeartbeatSpec(interval_s=0.05, timeout_s=0.2), empty_s=10.0)) as engine:
        members, failures = engine._fleet._membership, [RuntimeError("stumbled")] * 3
        look = members.look

        def stumbling(*given: object) -> list[Loss]:
            if failures:
                raise failures.pop()
            return look(*given)  # pyright: ignore

        monkeypatch.setattr(members, "look", stumbling)
        async with engine.open(asked("long 400")) as chunks:
            got = [await anext(chunks)]
            await until(lambda: not failures)
            got += [chunk async for chunk in chunks]
        assert len("".join(chunk.text for chunk in got if isinstance(chunk, Text)).split()) == 400
        assert workers(engine) == {"worker0.0": 1}
        assert "checking the workers failed" in caplog.text
        remote(engine).on_beat = lambda beat: None  # it falls silent
        await until(lambda: workers(engine) == {"worker0.0": 2})


@pytest.mark.seed("A3.15")
async def test_a_request_has_one_replica_of_a_stage_from_its_first_chunk_to_its_last() -> None:
    async def talkers(engine: Engine, id: str) -> set[str]:
        seen: set[str] = set()
        async with engine.open(asked("long 30", id, id)) as chunks:
            async for _ in chunks:
                seen |= {host.id for host in chunks.hosts if host.stage == "talker"}
        return seen

    apart = (WorkerSpec(stages=STAGES[:2]), WorkerSpec(stages=STAGES[2:], replicas=3))
    async with Engine(replace(spec(), workers=apart)) as engine:
        seen = await asyncio.gather(*(talkers(engine, str(i)) for i in range(6)))
        assert all(len(one) == 1 for one in seen)
        assert len(set().union(*seen)) == 3


@pytest.mark.bench
@pytest.mark.seed("A3.12")
async def test_a_second_replica_halves_the_work_of_the_first() -> None:
    """Its talker waits 10 ms for each request of a step, without computing: what a second one saves is the wait."""
    apart = (WorkerSpec(stages=STAGES[:2]), WorkerSpec(stages=("talker",), replicas=2), WorkerSpec(stages=STAGES[3:]))
    slow = {"request_s": 0.01, "frames_per_word": 2}
    async with Engine(replace(spec(launcher="local"), workers=apart, options=slow)) as engine:

        async def eight(name: str) -> float:
            began_s = time.monotonic()
            await asyncio.gather(*(answer(engine, "long 8", id=f"{name}{i}", session=f"{name}{i}") for i in range(8)))
            return time.monotonic() - began_s

        await eight("warm")
        both_s = min(await eight("both"), await eight("again"))
        engine._fleet.pools["talker"].drain("talker@worker1.1#1")
        alone_s = min(await eight("alone"), await eight("alone again"))
    assert alone_s / both_s > 1.4  # 2 on an idle machine; see benchmarks/fleet.py


@pytest.mark.seed("A1.20", "A3.8")
async def test_a_rolling_restart_costs_no_request_a_word() -> None:
    async with Engine(spec(replicas=2)) as engine:
        text = " ".join(f"word{i}" for i in range(400))
        opened = engine.open(asked("long 400"))
        async with opened as chunks:
            first = await anext(chunks)
            restart = asyncio.create_task(engine.restart())
            rest = [chunk.text async for chunk in chunks if isinstance(chunk, Text)]
        await restart
        assert data_of(first) + "".join(rest) == text
        assert workers(engine) == {"worker0.0": 2, "worker0.1": 2}
        assert await answer(engine, "say: still here") == "still here"


@pytest.mark.seed("A1.6")
async def test_a_worker_that_hangs_while_its_successor_serves_is_given_up() -> None:
    async with Engine(spec(heartbeat=HeartbeatSpec(interval_s=0.05, timeout_s=0.2))) as engine:
        before = remote(engine)
        async with engine.open(asked("long 400")) as chunks:
            first = await anext(chunks)
            restart = asyncio.create_task(engine.restart())
            await until(lambda: {one.incarnation for one in engine.replicas()} == {1, 2})
            before.on_beat = lambda beat: None  # it falls silent
            await until(lambda: before.hung)
            rest = [chunk.text async for chunk in chunks if isinstance(chunk, Text)]
        await restart
        assert data_of(first) + "".join(rest) == " ".join(f"word{i}" for i in range(400))
        assert workers(engine) == {"worker0.0": 2}


@pytest.mark.seed("A1.15")
async def test_a_successor_that_is_lost_comes_back_while_its_predecessor_is_drained() -> None:
    async with Engine(spec(empty_s=10.0)) as engine:
        before = remote(engine)
        async with engine.open(asked("long 400")) as chunks:
            await anext(chunks)
            restart = asyncio.create_task(engine.restart())
            await until(lambda: {one.incarnation for one in engine.replicas()} == {1, 2})
            remote(engine).fence()
            await until(lambda: {one.incarnation for one in engine.replicas()} == {1, 3})
            assert await answer(engine, "say: here", id="other") == "here"
            assert before.alive
        await restart
        assert workers(engine) == {"worker0.0": 3}


async def test_a_worker_that_joins_as_the_engine_closes_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that keeps it is cancelled before it ran."""
    stopped: list[str] = []
    async with Engine(spec()) as engine:
        fleet: Any = engine._fleet
        join, stop = fleet._join, engine._launcher.stop

        def joining(*given: Any) -> None:
            join(*given)
            fleet._running.cancel()

        async def stopping(worker: RemoteWorker) -> None:
            stopped.append(worker.id)
            await stop(worker)

        monkeypatch.setattr(fleet, "_join", joining)
        monkeypatch.setattr(engine._launcher, "stop", stopping)
        await engine.scale("talker", 2)
    assert "worker0.1#1" in stopped


async def test_a_worker_that_nobody_wants_by_the_time_when_it_is_ready_never_joins() -> None:
    async with Engine(spec(replicas=2, empty_s=10.0)) as engine:
        launcher = engine._launcher
        start, goes_on, starts = launcher.start, asyncio.Event(), asyncio.Event()

        async def slowly(task: Task, worker: RemoteWorker) -> None:
            starts.set()
            await goes_on.wait()
            await start(task, worker)

        launcher.start = slowly
        remote(engine, "worker0.1").fence()
        await starts.wait()
        await engine.scale("talker", 1)
        goes_on.set()
        await until(lambda: not any(task.get_name().startswith("keep:worker0.1") for task in asyncio.all_tasks()))
        assert workers(engine) == {"worker0.0": 1}


@pytest.mark.seed("A1.15", "A3.7")
async def test_scaling_adds_and_drains_replicas() -> None:
    async with Engine(spec()) as engine:
        await engine.scale("talker", 3)
        assert set(workers(engine)) == {"worker0.0", "worker0.1", "worker0.2"}
        await engine.scale("talker", 3)
        assert engine.stats()["talker"]["replicas"] == 3
        await engine.scale("thinker", 1)
        assert workers(engine) == {"worker0.0": 1}
        assert await answer(engine, "say: on my own") == "on my own"
        await engine.scale("talker", 2)
        assert workers(engine) == {"worker0.0": 1, "worker0.1": 2}, "a name comes back, an incarnation does not"


async def test_a_worker_that_hangs_as_it_starts_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(task: Task, worker: RemoteWorker) -> None:
        await asyncio.Event().wait()

    async with Engine(spec()) as engine:
        fleet: Any = engine._fleet
        monkeypatch.setattr(fleet, "_spec", replace(fleet._spec, start_s=0.05))
        monkeypatch.setattr(fleet._launcher, "start", hang)
        for change in (lambda: engine.scale("talker", 2), engine.restart):
            with pytest.raises(StageUnavailable, match="was not ready within"):
                await change()
        assert workers(engine) == {"worker0.0": 1}
        assert await answer(engine, "say: still here") == "still here"


@pytest.mark.seed("A1.16")
async def test_two_who_scale_at_once_do_not_count_each_other_out() -> None:
    async with Engine(spec()) as engine:
        await asyncio.gather(*(engine.scale("talker", count) for count in (3, 2, 4, 3)))
        assert len(workers(engine)) == 3


@pytest.mark.seed("A1.3", "A3.6")
@pytest.mark.parametrize(("stage", "count"), [("mouth", 2), ("", 2), ("talker", 0), ("talker", -1)])
async def test_what_cannot_be_scaled_is_refused_and_changes_nothing(stage: str, count: int) -> None:
    async with Engine(spec()) as engine:
        with pytest.raises(RequestError):
            await engine.scale(stage, count)
        assert workers(engine) == {"worker0.0": 1}


@pytest.mark.seed("A3.9")
async def test_no_more_replicas_than_devices() -> None:
    hosted = (WorkerSpec(stages=STAGES, devices=("cpu",)),)
    assert hosted[0].most == float("inf")
    assert WorkerSpec(stages=STAGES, devices=(0, 1)).most == 2


@pytest.mark.seed("A1.17", "A3.9")
async def test_each_replica_has_a_device_of_its_own() -> None:
    hosted = WorkerSpec(stages=STAGES, devices=(3, "cuda:1", 0), replicas=3)
    fleet = Fleet(replace(spec(), workers=(hosted,)), InlineLauncher(ClusterSpec()))
    assert [fleet.placement(0, replica).device for replica in range(3)] == ["3", "cuda:1", "0"]


@pytest.mark.seed("A1.17")
@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [("", "1", "1"), ("", "cuda:2", "2"), ("3,5", "1", "5"), ("GPU-a,GPU-b", "0", "GPU-a")],
)
def test_a_worker_sees_its_own_device_only(
    visible: str, device: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(host, "_devices", lambda: 1)
    task = Task("worker0.0#1", (), WorkerSpec(stages=STAGES), device, ChunkSpec(), 0.2)
    assert host.set_visible_device(task).device == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.seed("A3.9")
@pytest.mark.parametrize("visible", ["", "3"])
def test_a_device_that_is_not_there_is_told_at_the_start(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(host, "_devices", lambda: 0)
    task = Task("worker0.0#1", (), WorkerSpec(stages=STAGES), "1", ChunkSpec(), 0.2)
    with pytest.raises(ConfigError, match="the device 1 does not exist"):
        host.set_visible_device(task)
    untouched = msgspec.structs.replace(task, device="cpu")
    assert host.set_visible_device(untouched) is untouched


def ended(one: psutil.Process) -> bool:
    try:
        return one.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.seed("A3.5")
async def test_one_worker_that_will_not_end_does_not_keep_the_others() -> None:
    engine = await Engine(spec(replicas=2, launcher="local")).__aenter__()
    other = process(engine, "worker0.1")
    os.kill(process(engine).pid, signal.SIGSTOP)
    closing = asyncio.create_task(engine.__aexit__(None, None, None))
    await until(lambda: ended(other))
    await closing
    assert not psutil.Process().children()


@pytest.mark.seed("A3.5", "A3.8")
async def test_one_worker_that_cannot_be_stopped_keeps_no_other_from_its_end_nor_from_its_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[str] = []
    async with Engine(spec(replicas=3)) as engine:
        stop = engine._launcher.stop

        async def failing(worker: RemoteWorker) -> None:
            await stop(worker)
            stopped.append(worker.id)
            if worker.id.startswith("worker0.1"):
                raise OSError("no such place")

        monkeypatch.setattr(engine._launcher, "stop", failing)
        remote(engine, "worker0.1").fence()  # while it serves
        await until(lambda: workers(engine) == {"worker0.0": 1, "worker0.1": 2, "worker0.2": 1})
        assert await answer(engine, "say: as before") == "as before"
    assert set(stopped) == {"worker0.0#1", "worker0.1#1", "worker0.1#2", "worker0.2#1"}
    assert "the worker worker0.1#1 could not be stopped" in caplog.text
    assert "the worker worker0.1#2 could not be stopped" in caplog.text


async def test_a_worker_that_cannot_come_back_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine(spec(empty_s=10.0)) as engine:
        launcher = engine._launcher
        start, failures = launcher.start, [EngineError("no room"), EngineError("no room")]

        async def failing(task: object, worker: object) -> None:
            if failures:
                raise failures.pop()
            await start(task, worker)  # pyright: ignore

        launcher.start = failing  # pyright: ignore
        remote(engine).fence()
        assert await answer(engine, "say: at last") == "at last"
        assert sum("could not be restarted: no room" in record.message for record in caplog.records) == 2


async def test_a_replica_with_another_vocabulary_does_not_join(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says would go back to the others as ids that mean something else to them."""
    async with Engine(spec()) as engine:
        describe = ScriptThinker.describe

        def with_another(config: StageConfig) -> StageInfo:
            info = describe(config)
            return msgspec.structs.replace(info, facets=msgspec.structs.replace(info.facets, tokenizer="another"))

        monkeypatch.setattr(ScriptThinker, "describe", staticmethod(with_another))
        with pytest.raises(
            WeightsError, match="this worker's thinker has a different tokenizer than the running replicas"
        ):
            await engine.scale("thinker", 2)
        assert workers(engine) == {"worker0.0": 1}
        assert await answer(engine, "say: still here") == "still here"


@pytest.mark.seed("A2.19")
async def test_a_stage_that_nobody_hosts_is_named_at_the_start() -> None:
    workers = (WorkerSpec(stages=("ears", "thinker", "talker")),)
    with pytest.raises(ConfigError, match="code2wav"):
        await Engine(EngineSpec(model="script", workers=workers, launcher="inline")).__aenter__()


@pytest.mark.seed("A3.9")
@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("[{stages: [a], devices: [0], replicas: 2}]", "2 replicas need 2 devices"),
        ("[{stages: [a], devices: [0, 0], replicas: 2}]", "workers[0] already has the device"),
        ("[{stages: [a], devices: [0]}, {stages: [b], devices: ['cuda:0']}]", "workers[0] already has the device"),
    ],
)
def test_a_device_belongs_to_one_worker(workers: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"model: script\nworkers: {workers}")
    assert message in str(caught.value)
