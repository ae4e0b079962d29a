"""Stages, workers and replicas without models or processes, for the tests of the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from engine.chunk import Audio, Bundle, Chunk, Codes, Speech, Tensors, Text, Transcript, Usage, VoiceText, kinds
from engine.control.chunks import Chunks
from engine.control.engine import Engine
from engine.control.orchestrator import Orchestrator
from engine.control.pool import StagePool
from engine.control.replica import RemoteWorker, StageReplica
from engine.core import Message, Request, StageInfo, TextPart
from engine.deployment.config import ChunkSpec, WorkerSpec
from engine.errors import EngineError
from engine.ipc import links
from engine.ipc import messages as wire
from engine.worker.loop.worker import Worker
from engine.worker.process.heartbeat import beats
from engine.worker.stage import Stage
from engine.worker.stage_request import StageRequest

ANY = kinds(Speech, Transcript, Text, VoiceText, Usage, Codes, Audio) | {"x"}
"""What a fake stage takes."""

Result = Sequence[Chunk] | EngineError
Act = Callable[[StageRequest], Result]
C = TypeVar("C")


def request(text: str = "hello", id: str = "r", **fields: Any) -> Request:
    """A typed request."""
    return Request(id=id, session="s", messages=(Message("user", (TextPart(text),)),), **fields)


def x(data: Any = None) -> Tensors:
    """A chunk that carries anything."""
    return Tensors("x", {"data": data})


def data_of(chunk: Chunk) -> Any:
    """What a chunk carries."""
    match chunk:
        case Tensors(_, fields):
            return fields["data"]
        case Usage():
            return chunk
        case Text(data) | Transcript(data) | Audio(data) | Speech(data) | Codes(data) | Bundle(data):
            return data
        case _:
            raise AssertionError(chunk)


def only(kind: type[C], chunks: Iterable[Any]) -> list[C]:
    """Those of a kind, which its type is known of then."""
    return [chunk for chunk in chunks if isinstance(chunk, kind)]


def echo(req: StageRequest) -> Result:
    """Emit each row as it came; done with the end."""
    if req.pending:
        return [req.pending.popleft()]
    req.done = True
    return []


class FakeStage:
    """Steps a request by ``act``, and notes the slots and rows of every batch."""

    def __init__(self, name: str = "a", order: int = 0, act: Act = echo, **info: Any) -> None:
        passes = frozenset({"x"})
        fields: dict[str, Any] = {"takes": ANY, "emits": passes, "feeds": passes, "answers": True} | info
        self.info = StageInfo(name=name, order=order, **fields)
        self.act = act
        self.batches: list[list[str]] = []
        self.opened = 0

    def open(self, req: StageRequest) -> None:
        self.opened += 1

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            yield chunk

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        self.batches.append([req.request.id for req in reqs])
        return [self.act(req) for req in reqs]


class Desk:
    """The server's side of a worker: what it sent, by kind and run."""

    def __init__(self) -> None:
        self.sent: list[wire.Message] = []
        self.worker: Worker

    def put(self, *messages: wire.Message) -> None:
        for message in messages:
            self.worker.receive(message)

    def of(self, kind: type[Any], run: str) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kind) and getattr(message, "run", None) == run]

    def data(self, run: str) -> list[Any]:
        """What the chunks of a run carried."""
        return [data_of(emit.chunk) for emit in self.of(wire.Emit, run)]

    async def ended(self, *runs: str) -> None:
        """Wait until these runs have ended or failed."""
        for run in runs:
            await until(lambda run=run: bool(self.of(wire.End, run) or self.of(wire.Failed, run)))


@asynccontextmanager
async def working(
    *stages: Stage,
    max_batch: int = 4,
    chunks: ChunkSpec | None = None,
    through: Callable[[wire.Message], wire.Message] = lambda message: message,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Desk]:
    """A worker that serves these stages while the block lasts."""
    desk = Desk()
    hosted = {stage.info.name: stage for stage in stages}

    def send(message: wire.Message) -> None:
        desk.sent.append(through(message))

    desk.worker = Worker(hosted, chunks or ChunkSpec(), dict.fromkeys(hosted, max_batch), send, clock)
    serving = asyncio.create_task(desk.worker.serve(), name="serve")
    await asyncio.sleep(0)
    try:
        yield desk
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()


def opened(run: str, *stages: str, credit: int = 64, **fields: Any) -> wire.Open:
    return wire.Open(run, request(id=run, **fields), stages or ("a",), credit)


def fed(run: str, *data: Any) -> list[wire.Message]:
    return [wire.Feed(run, x(one)) for one in data]


class LoopClock:
    """Has the running event loop's clock go ahead by ``passed_s``, which a test raises: nobody sleeps for that."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        clock, self.passed_s = loop.time, 0.0
        loop.time = lambda: clock() + self.passed_s  # type: ignore[method-assign]


async def turns(n: int = 20) -> None:
    """Let everything that can run without waiting do so."""
    for _ in range(n):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], turns_left: int = 20_000) -> None:
    """Let the loop turn until something holds. What takes more than a thousand turns is another thread's or process's,
    which a loop that spins would hold up."""
    for turn in range(turns_left):
        if condition():
            return
        await asyncio.sleep(0 if turn < 1000 else 0.002)
    assert condition(), "it never came to hold"


async def whole(chunks: AsyncIterator[C]) -> list[C]:
    """All of a stream."""
    return [chunk async for chunk in chunks]


def lose(engine: Engine, stage: str) -> bool:
    """Lose the replica of a stage that has a lease, if there is one."""
    for member in engine._fleet.pools[stage].members():
        if member.leases:
            member.replica.host.fence()
            return True
    return False


class Rig:
    """An orchestrator over workers with fake stages, all in this process."""

    def __init__(self) -> None:
        self.pools: dict[str, StagePool[StageReplica]] = {}
        self.remotes: list[RemoteWorker] = []
        self.workers: list[Worker] = []
        self.orchestrator: Orchestrator

    def open(self, request: Request, inputs: AsyncIterator[Chunk] | None = None) -> AbstractAsyncContextManager[Chunks]:
        return self.orchestrator.open(request, inputs)

    @property
    def idle(self) -> bool:
        """Whether nothing of any request is left, on either side."""
        leased = any(pool.leased or pool.waiting for pool in self.pools.values())
        return not leased and not any(worker.runs for worker in self.workers)

    def join(self, remote: RemoteWorker, stages: Sequence[FakeStage]) -> None:
        for stage in stages:
            name = stage.info.name
            pool = self.pools.setdefault(name, StagePool(stage.info))
            replica = StageReplica(f"{name}@{remote.id}", name, remote)
            pool.join(replica)
            remote.on_lost.append(lambda pool=pool, replica=replica: pool.leave(replica.id))


@asynccontextmanager
async def rigged(
    *workers: Sequence[FakeStage], stall_s: float = 30.0, beat_s: float | None = None
) -> AsyncGenerator[Rig]:
    """A rig with one worker for each group of stages, while the block lasts. They beat where ``beat_s`` is given."""
    rig = Rig()
    tasks: list[asyncio.Task[None]] = []
    for i, stages in enumerate(workers):
        remote = RemoteWorker(f"w{i}")
        inbox = lambda message, i=i: rig.workers[i].receive(message)  # noqa: E731
        remote.link, link = links.local_pair((remote.receive, remote.lost), (inbox, _nop))
        rig.remotes.append(remote)
        hosted = {stage.info.name: stage for stage in stages}
        rig.workers.append(Worker(hosted, ChunkSpec(), dict.fromkeys(hosted, 4), link.send))
        tasks.append(asyncio.create_task(rig.workers[i].serve(), name=f"serve{i}"))
        if beat_s is not None:
            task = wire.Task(remote.id, (), WorkerSpec(stages=()), "cpu", ChunkSpec(), beat_s)
            tasks.append(asyncio.create_task(beats(rig.workers[i], task, link.send), name=f"beats{i}"))
        rig.join(remote, stages)
    pools = sorted(rig.pools.values(), key=lambda pool: pool.info.order)
    rig.orchestrator = Orchestrator(pools, stall_s)
    await asyncio.sleep(0)
    try:
        yield rig
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()


def _nop() -> None:
    pass
