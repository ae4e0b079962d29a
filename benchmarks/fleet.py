"""Measure the benefit and cost of replicas, with the scripted family, so that only the engine is measured.

    python -m benchmarks.fleet [--quick] [NAME ...]

sessions    how many listeners one talker replica serves without an underrun, and how many two do; the talker's step
            sleeps 10 ms per request, like a slower device, and a frame is 40 ms
spread      round_robin: how evenly simultaneous requests are spread; least_queue: the fast one's share of requests
            when there are two, while each step of the other takes 150 ms
process     how much a separate worker process adds to the time to first audio

`benchmarks.losses` measures the cost of a lost replica. On a busy machine, compare only values of the same run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from app.client.player import Player
from benchmarks import program
from engine import Engine, EngineSpec, Request, WorkerSpec
from engine.chunk import Audio
from engine.control.replica import RemoteWorker
from engine.deployment.config import ChunkSpec, HeartbeatSpec

REQUEST_S = 0.01
FRAME_S = 0.04
ALL = ("ears", "thinker", "talker", "code2wav")


def spec(*workers: WorkerSpec, **fields: object) -> EngineSpec:
    given = {"chunks": ChunkSpec(first=1, growth=1.5, steady=12), **fields}
    return EngineSpec(model="script", workers=workers, **given)  # pyright: ignore[reportArgumentType]


def fleet(talkers: int, request_s: float = REQUEST_S, **fields: object) -> EngineSpec:
    """Return a deployment with the talker in workers of its own and the rest in one."""
    return spec(
        WorkerSpec(stages=("ears", "thinker"), max_batch=64),
        WorkerSpec(stages=("talker",), max_batch=64, replicas=talkers),
        WorkerSpec(stages=("code2wav",), max_batch=64),
        options={"request_s": request_s},
        **fields,
    )


def asked(name: str, words: int) -> Request:
    """Return a request that speaks ``words`` given words, for any family."""
    return Request(id=name, session=name, messages=(), say=" ".join(f"word{i}" for i in range(words)), lead_s=1.5)


async def listen(engine: Engine, name: str, words: int) -> Player:
    """Play one answer as its listener hears it."""
    player = Player()
    async with engine.open(asked(name, words)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                player.receive(time.monotonic(), chunk.wave)
    return player


def counted(engine: Engine) -> Counter[str]:
    """Count the answers of each talker from now on."""
    counts: Counter[str] = Counter()

    def count(worker: RemoteWorker) -> None:
        run = worker.run

        async def counting(*arguments: Any) -> None:
            counts[worker.id] += 1
            await run(*arguments)

        worker.run = counting  # pyright: ignore[reportAttributeAccessIssue]

    for replica in ("worker1.0", "worker1.1"):
        count(remote(engine, replica))
    return counts


async def smooth(engine: Engine, listeners: int, words: int) -> bool:
    """Return whether ``listeners`` simultaneous answers play without a gap."""
    players = await asyncio.gather(*(listen(engine, f"{listeners}-{i}", words) for i in range(listeners)))
    return not any(player.underruns for player in players)


async def most_sessions(spec: EngineSpec, served: int, words: int) -> int:
    """Return the maximum number of listeners without a gap, at least ``served``.

    A number that fails is tried twice, because noise on the machine may cause a gap.
    """
    async with Engine(spec) as engine:
        await smooth(engine, 2, 2)  # warm
        while await smooth(engine, served + 1, words) or await smooth(engine, served + 1, words):
            served += 1
        return served


async def sessions(quick: bool) -> bool:
    words, rounds = (8, 1) if quick else (16, 3)
    ones = [await most_sessions(fleet(1), 3, words) for _ in range(rounds)]
    twos = [await most_sessions(fleet(2), 6, words) for _ in range(rounds)]
    ratio = statistics.median(twos) / statistics.median(ones)
    ideal = int(FRAME_S / REQUEST_S)
    print(f"sessions without underrun: 1 talker {ones}, 2 talkers {twos} (a replica's own limit: {ideal} each)")
    return program.check_bar("ratio of sessions, 2 talkers to 1", ratio, ">=", 1.8, "")


async def spread(quick: bool) -> bool:
    async with Engine(fleet(2, request_s=0.0, balance="round_robin")) as engine:
        counts = counted(engine)
        await asyncio.gather(*(listen(engine, f"rr-{i}", 2) for i in range(24)))
    even = program.check_bar(
        f"round_robin, {dict(counts)}: difference", max(counts.values()) - min(counts.values()), "<=", 1, ""
    )
    return await least_queue(4 if quick else 12) and even


async def least_queue(seconds: float) -> bool:
    heartbeat = HeartbeatSpec(interval_s=0.2, timeout_s=10.0)  # it is slowed, not dead
    async with Engine(fleet(2, heartbeat=heartbeat)) as engine:
        slow = remote(engine, "worker1.1")
        counts = counted(engine)
        async with slowed(slow.hello.result().pid):
            await crowd(engine, 2.0)  # until it shows
            counts.clear()
            await crowd(engine, seconds)
    share = 1 - counts[slow.id] / max(1, counts.total())
    return program.check_bar(
        f"least_queue, of {counts.total()} answers: share of the fast one", 100 * share, ">=", 80, "%"
    )


async def crowd(engine: Engine, seconds: float) -> None:
    """Run six listeners, each with one short answer after the other."""

    async def one(i: int) -> None:
        count = 0
        while time.monotonic() < end_s:
            count += 1
            await listen(engine, f"c{i}-{count}-{end_s}", 2)

    end_s = time.monotonic() + seconds
    await asyncio.gather(*(one(i) for i in range(6)))


@asynccontextmanager
async def slowed(pid: int) -> AsyncGenerator[None]:
    """Slow a process down, so that every step takes the length of a stop."""

    async def hold() -> None:
        while True:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.15)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(hold(), name="hold")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        os.kill(pid, signal.SIGCONT)


async def process(quick: bool) -> bool:
    """Measure alternately, so that both variants see the same conditions."""
    took: dict[str, list[float]] = {"inline": [], "local": []}
    one = WorkerSpec(stages=ALL)
    async with Engine(spec(one, launcher="inline")) as inline, Engine(spec(one)) as local:
        for i in range(40 if quick else 200):
            pair = [("inline", inline), ("local", local)]
            for name, engine in pair if i % 2 else pair[::-1]:
                async with engine.open(asked(f"{name}-{i}", 1)) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Audio):
                            break
                    ledger = chunks.ledger
                assert ledger is not None
                took[name].append(ledger.ttfa_ms)
    medians = {name: statistics.median(values) for name, values in took.items()}
    least = {name: statistics.quantiles(values, n=10)[0] for name, values in took.items()}
    print(f"time to first audio, the quickest tenth: {least['inline']:.2f} ms, in another {least['local']:.2f} ms")
    print(f"time to first audio, median: in process {medians['inline']:.2f} ms, in another {medians['local']:.2f} ms")
    return program.check_bar("what another process adds", medians["local"] - medians["inline"], "<=", 1.0, "ms")


def remote(engine: Engine, name: str) -> RemoteWorker:
    """Return a worker by its id, bypassing the engine's interface."""
    worker = engine._fleet.placements[name].worker  # pyright: ignore[reportPrivateUsage]
    assert worker is not None
    return worker


BENCHES: dict[str, Callable[[bool], Awaitable[bool]]] = {
    "sessions": sessions,
    "spread": spread,
    "process": process,
}


if __name__ == "__main__":
    sys.exit(asyncio.run(program.run_named(__doc__, BENCHES)))
