"""Requests are left at random moments, whatever they were doing, and nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

import numpy as np
import pytest

from engine import AudioPart, Chunks, Engine, EngineError, EngineSpec, Message, Request, TextPart, WorkerSpec
from engine.chunk import Chunk, Speech, Text
from engine.core import ANSWER, IN_WRITING
from engine.ipc.shared_memory import LEAST_BYTES, SharedMemory
from tests.engine.fakes import turns, until
from tests.guard.gates import segments

AT_ONCE = 12  # more than there are slots for: some are left while they wait for one
PATIENCE_S = 0.1
THERE = segments()  # of others: the count is the whole machine's
LONG = np.zeros(LEAST_BYTES, np.int16)  # so long that it is shared, not sent
TEXTS = ("say: a few words", "long 200", "tool look {}", "fail", "say: nothing")


def spec(launcher: str) -> EngineSpec:
    workers = [WorkerSpec(stages=("ears", "thinker"), replicas=2, max_batch=4)]
    workers += [WorkerSpec(stages=("talker", "code2wav"), replicas=2, max_batch=4)]
    return EngineSpec(model="script", workers=tuple(workers), launcher=launcher, queue=AT_ONCE, empty_s=5.0)


async def speech(draw: random.Random) -> AsyncGenerator[Chunk]:
    for _ in range(draw.randrange(40)):
        yield Speech(np.zeros(320, np.int16))
        await turns(draw.randrange(3))


def asked(id: str, draw: random.Random) -> Request:
    live = draw.random() < 0.3
    messages = () if live else (Message("user", (TextPart(draw.choice(TEXTS)),)),)
    if draw.random() < 0.1:
        messages = (Message("user", (AudioPart(LONG, "some words"),)), *messages)
    speaks = draw.random() < 0.8
    return Request(
        id=id, session=f"{draw.randrange(5)}", messages=messages, live=live,
        wants=ANSWER if speaks else IN_WRITING, lead_s=draw.choice([None, 0.2]),
    )  # fmt: skip


async def waiting(chunks: Chunks, draw: random.Random) -> None:
    await turns(draw.randrange(60))


async def reading(chunks: Chunks, draw: random.Random) -> None:
    for _ in range(draw.randrange(30)):
        if await anext(chunks, None) is None:
            return


async def holding(chunks: Chunks, draw: random.Random) -> None:
    chunks.speculative()
    await reading(chunks, draw)
    chunks.confirmed()


async def hearing_all(chunks: Chunks, draw: random.Random) -> None:
    async for _ in chunks:
        chunks.played()


async def cancelled(chunks: Chunks, draw: random.Random) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await turns(100)


WAYS: tuple[Callable[[Chunks, random.Random], Awaitable[None]], ...] = (
    waiting,
    reading,
    holding,
    hearing_all,
    cancelled,
)


async def abort(engine: Engine, id: str, draw: random.Random) -> None:
    """Open a request and leave it, in one of many ways."""
    request = asked(id, draw)
    try:
        async with engine.open(request, speech(draw) if request.live else None) as chunks:
            async with asyncio.timeout(draw.random() * PATIENCE_S):  # what is held, or far ahead, would wait for ever
                await draw.choice(WAYS)(chunks, draw)
    except (EngineError, TimeoutError, asyncio.CancelledError):
        pass


def kept(engine: Engine) -> dict[str, int]:
    """What could grow, here and in the workers: tasks, open files, shared memory, slots, runs, marks of members."""
    members = [member for pool in engine._fleet.pools.values() for member in pool.members()]
    workers = {member.replica.host for member in members}
    files = [file for pid in {os.getpid(), *(worker.hello.result().pid for worker in workers)} for file in opened(pid)]
    return {
        "tasks": len(asyncio.all_tasks()),
        "files": len(files),
        "shared memory": sum(file.startswith(("/memfd:", "/dev/shm/")) for file in files) + len(segments() - THERE),
        "leases": sum(len(member.leases) for member in members),
        "waiters": sum(pool.waiting for pool in engine._fleet.pools.values()),
        "runs": sum(worker.runs for worker in workers),
        "replicas": len(members),
    }


def opened(pid: int) -> list[str]:
    """What a process has open."""
    found: list[str] = []
    with suppress(OSError):  # it may be gone, or going
        for file in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(file.path))
    return found


def lose_one(engine: Engine, draw: random.Random) -> None:
    pools = list(engine._fleet.pools.values())
    if members := draw.choice(pools).members():
        draw.choice(members).replica.host.fence()


async def storm(count: int, seed: int, launcher: str = "inline") -> None:
    draw = random.Random(seed)
    async with Engine(spec(launcher)) as engine:
        for i in range(30):
            await abort(engine, f"warm{i}", draw)
        await turns(100)
        before = kept(engine)
        assert before["leases"] == before["waiters"] == before["runs"] == before["shared memory"] == 0
        for first in range(0, count, AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for i in range(first, first + AT_ONCE):
                    tasks.create_task(abort(engine, str(i), draw), name=f"abort{i}")
                if draw.random() < 0.02:
                    lose_one(engine, draw)
        await until(lambda: kept(engine)["replicas"] == before["replicas"], 30_000)
        gc.collect()
        await until(lambda: kept(engine) == before, 30_000)
        assert await still_answers(engine)


async def still_answers(engine: Engine) -> bool:
    request = Request(id="last", session="s", messages=(Message("user", (TextPart("say: still here"),)),))
    async with engine.open(request) as chunks:
        return "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)]) == "still here"


@pytest.mark.seed("A0.18", "A2.10", "A2.20", "A3.10", "A4.13")
async def test_three_hundred_aborts_leave_nothing() -> None:
    await storm(300, seed=1)


@pytest.mark.seed("A4.13")
async def test_a_hundred_aborts_leave_nothing_in_processes_of_their_own_either() -> None:
    """Where sound crosses through shared memory."""
    await storm(100, seed=3, launcher="local")


async def test_the_look_at_what_is_kept_sees_shared_memory() -> None:
    """The negative control: an array that was shared and never taken."""
    async with Engine(spec("inline")) as engine:
        before = kept(engine)
        shared = SharedMemory()
        assert shared.share(LONG)
        assert {name: n - before[name] for name, n in kept(engine).items() if n != before[name]} == {
            "files": 1,
            "shared memory": 1,
        }
        shared.close()
        assert kept(engine) == before


@pytest.mark.chaos
@pytest.mark.parametrize("launcher", ["inline", "local"])
async def test_ten_thousand_aborts_leave_nothing(launcher: str) -> None:
    await storm(10_000, 2, launcher)
