"""A native call that never returns costs its own request and its worker's life, and nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from engine import Engine, EngineSpec, Message, ReplicaLost, Request, Stalled, TextPart, WorkerSpec
from engine.chunk import Audio, Chunk, Text
from engine.core import ANSWER, Want
from engine.deployment.config import ClusterSpec, StageSpec
from engine.ipc.handshake import make_token
from tests.engine.control.test_joining import free_port, parley_worker
from tests.engine.fakes import data_of, until

STAGES = Path(__file__).parent / "blocking_stages.py"


NO_CLUSTER = ClusterSpec()
TEXT: frozenset[Want] = frozenset({"text"})


def asked(id: str, text: str, wants: frozenset[Want] = ANSWER) -> Request:
    return Request(id=id, session=id, messages=(Message("user", (TextPart(text),)),), wants=wants)


@asynccontextmanager
async def serving(
    *workers: WorkerSpec,
    thinker: str = "script.thinker",
    launcher: str = "local",
    stall_s: float = 60.0,
    cluster: ClusterSpec = NO_CLUSTER,
) -> AsyncGenerator[Engine]:
    stages = StageSpec(use=thinker, name="thinker"), StageSpec(use=f"{STAGES}:Voice", name="voice")
    spec = EngineSpec(stages=stages, workers=workers, launcher=launcher, empty_s=20.0, stall_s=stall_s, cluster=cluster)
    async with Engine(spec) as engine:
        yield engine


async def words(engine: Engine, request: Request) -> tuple[str, int]:
    """The text of an answer, and how many words of it were heard."""
    async with engine.open(request) as chunks:
        got = [chunk async for chunk in chunks]
    return "".join(chunk.text for chunk in got if isinstance(chunk, Text)), sum(isinstance(one, Audio) for one in got)


def incarnations(engine: Engine) -> dict[str, int]:
    return {replica.stage: replica.incarnation for replica in engine.replicas()}


@pytest.mark.parametrize("call", ["hang", "hold"])
async def test_a_native_call_that_never_returns_has_its_worker_fenced_and_nobody_else_notices(call: str) -> None:
    async with serving() as engine:
        async with engine.open(asked("other", "long 400", wants=TEXT)) as other:
            first: Chunk = await anext(other)
            with pytest.raises(ReplicaLost, match="it is not retried"):
                await words(engine, asked("bad", f"say: well {call} on"))
            rest = [data_of(chunk) async for chunk in other if isinstance(chunk, Text)]
            assert data_of(first) + "".join(rest) == " ".join(f"word{i}" for i in range(400))
        await until(lambda: engine.ready)
        assert await words(engine, asked("next", "say: here again")) == ("here again", 2)
        assert incarnations(engine) == {"thinker": 1, "voice": 2}
    assert not psutil.Process().children()


@pytest.mark.parametrize("call", ["hang", "hold"])
async def test_a_worker_from_elsewhere_that_nobody_can_kill_ends_by_itself_and_comes_back(
    call: str, tmp_path: Path
) -> None:
    port, token = free_port(), tmp_path / "token"
    make_token(token)
    workers = WorkerSpec(stages=("thinker",)), WorkerSpec(stages=("voice",), replicas=0)
    cluster = ClusterSpec(listen=f"127.0.0.1:{port}", token_file=str(token))
    with parley_worker(f"127.0.0.1:{port}", token, "--stages", "voice"):
        async with serving(*workers, cluster=cluster) as engine:
            with pytest.raises(ReplicaLost, match="it is not retried"):
                await words(engine, asked("bad", f"say: well {call} on"))
            assert await words(engine, asked("next", "say: here again")) == ("here again", 2)
            assert incarnations(engine) == {"thinker": 1, "voice": 2}


async def test_a_native_call_that_holds_pythons_lock_may_take_as_long_as_its_stage_says() -> None:
    """No heartbeat comes meanwhile, and the worker is not given up for that."""
    async with serving() as engine:
        assert await words(engine, asked("r", "say: a long call")) == ("a long call", 3)
        assert incarnations(engine) == {"thinker": 1, "voice": 1}


async def test_of_several_in_a_step_that_hangs_the_one_whose_fault_it_is_ends_and_the_others_go_on() -> None:
    """They are tried once more, each alone."""
    async with serving() as engine:
        bad = asyncio.create_task(words(engine, asked("bad", "say: hang")))
        good = [asyncio.create_task(words(engine, asked(f"good{n}", f"long {20 + n}"))) for n in range(3)]
        for n, (text, heard) in enumerate(await asyncio.gather(*good)):
            assert text == " ".join(f"word{i}" for i in range(20 + n))
            assert heard == 20 + n
        with pytest.raises(ReplicaLost):
            await bad


@pytest.mark.parametrize("launcher", ["inline", "local"])
async def test_a_blocking_stage_serves_like_any_other(launcher: str) -> None:
    async with serving(WorkerSpec(stages=("thinker", "voice")), launcher=launcher) as engine:
        answers = await asyncio.gather(*(words(engine, asked(f"r{n}", f"long {n}")) for n in range(1, 9)))
        assert answers == [(" ".join(f"word{i}" for i in range(n)), n) for n in range(1, 9)]


async def test_a_server_that_never_answers_costs_its_request_and_no_worker() -> None:
    """A stage that waits for its server has no step under way: its answer is ended, and it serves on."""
    async with serving(thinker=f"{STAGES}:Asks", stall_s=2.0) as engine:
        with pytest.raises(Stalled):
            await words(engine, asked("bad", "never"))
        assert await words(engine, asked("next", "here again")) == ("here again", 1)
        assert incarnations(engine) == {"thinker": 1, "voice": 1}


async def test_a_worker_ends_by_itself_although_its_native_call_does_not() -> None:
    """One that came from elsewhere has nobody who would kill it."""
    async with serving() as engine:
        asking = asyncio.create_task(words(engine, asked("bad", "say: wait")))
        await until(lambda: any(life.blocking for life in engine._fleet._membership._lives.values()))
        (voice,) = (one for one in engine._fleet.placements.values() if one.spec.stages == ("voice",))
        assert voice.worker is not None
        process = voice.launcher._processes[voice.worker.id]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ReplicaLost):
        await asking
    assert process.returncode == 0, "it was killed"
    assert not psutil.Process().children()
