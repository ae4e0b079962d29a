"""Measure the engine's own overhead, with stages that compute nothing: hand-over between stages, and steps.

    python -m benchmarks.overhead [--json] [--rounds N]

hand-over   from the end of the step that emits a chunk to the start of the next stage's step with it, in one process
            (both stages in one worker) and across processes (each stage in its own worker process, with the server
            in between)
step        wall time of the step loop per step, at batch 1 and at batch 17; the difference divided by 16 is the cost of
            each further sequence. Each request gets one row and emits one chunk to the server. Also measured while
            the server does not read, as over a slow link

On a busy machine compare the best round, which was disturbed least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from engine.aio import event_loop
from engine.chunk import Chunk, Tensors
from engine.control.orchestrator import Orchestrator
from engine.control.pool import StagePool
from engine.control.replica import RemoteWorker, StageReplica
from engine.core import Message, Request, StageInfo, TextPart
from engine.deployment.config import ChunkSpec
from engine.ipc import links, messages
from engine.worker.loop.worker import Worker
from engine.worker.stage_request import StageRequest

CHUNKS = 400  # chunks per round
BARS = {
    "hand-over in process, p50": 60.0,
    "hand-over across processes, p50": 150.0,
    "step at batch 1": 150.0,
    "each further sequence": 8.0,
}


ROW = "bench.row"


class NoOp:
    """Stage that emits a chunk per row with the time of its step's end; ``took`` receives the time since then."""

    def __init__(self, name: str, order: int, emits: str, took: Callable[[float], None]) -> None:
        kinds = frozenset({ROW})
        self.info = StageInfo(
            name=name,
            order=order,
            takes=kinds | {"speech"},
            emits=frozenset({emits}),
            feeds=kinds,
            slots=64,
            max_pending=64,
            answers=True,
        )
        self._took = took

    def open(self, req: StageRequest) -> None:
        pass

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            yield made_s(chunk)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk]]:
        began_s = time.monotonic()
        return [self._pass_on(req, began_s) for req in reqs]

    def _pass_on(self, req: StageRequest, began_s: float) -> Sequence[Chunk]:
        if not req.pending:
            req.done = req.ended
            return ()
        self._took(began_s - req.pending.popleft())
        return (row(),)


def row() -> Tensors:
    return Tensors(ROW, {"at_s": time.monotonic()})


def made_s(chunk: Chunk) -> float:
    assert isinstance(chunk, Tensors)
    return chunk.fields["at_s"]


def first(took: Callable[[float], None]) -> NoOp:
    return NoOp("first", 0, "nothing", took)


def second(took: Callable[[float], None]) -> NoOp:
    return NoOp("second", 1, ROW, took)


def worker(stages: Sequence[NoOp], send: Callable[[messages.Message], None]) -> Worker:
    hosted = {s.info.name: s for s in stages}
    return Worker(hosted, ChunkSpec(), dict.fromkeys(hosted, 64), send)


def ignore(_: float) -> None:
    pass


async def paced(n: int, wait_s: float) -> AsyncGenerator[Chunk]:
    for _ in range(n):
        await asyncio.sleep(wait_s)
        yield row()


def live_request() -> Request:
    return Request(id="r", session="s", messages=(Message("user", (TextPart("go"),)),), live=True)


def pool(stage: NoOp, remote: RemoteWorker) -> StagePool[StageReplica]:
    found: StagePool[StageReplica] = StagePool(stage.info)
    found.join(StageReplica(stage.info.name, stage.info.name, remote))
    return found


async def in_process(n: int) -> list[float]:
    """Measure hand-overs between two stages in one worker, in seconds."""
    took: list[float] = []
    served = worker([first(ignore), second(took.append)], lambda _: None)
    serving = asyncio.create_task(served.serve())
    await asyncio.sleep(0)
    served.receive(messages.Open("r", live_request(), ("first", "second"), 1 << 30))
    async for chunk in paced(n, 0.001):
        served.receive(messages.Feed("r", chunk))
    await asyncio.sleep(0.05)
    serving.cancel()
    await asyncio.wait([serving])
    return took


async def child(sock: socket.socket, name: str) -> None:
    """Run a worker process with one stage, which finally reports its measurements as a chunk."""
    gone, took = asyncio.Event(), list[float]()
    inbox: list[messages.Message] = []
    receive: Callable[[messages.Message], None] = inbox.append
    link = links.SocketLink(lambda message: receive(message), gone.set)
    served = worker([(first if name == "first" else second)(took.append)], link.send)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    serving = asyncio.create_task(served.serve())
    await asyncio.sleep(0)

    def on_message(message: messages.Message) -> None:
        if isinstance(message, messages.Stop):
            link.send(messages.Emit("took", Tensors("took", {"s": took}), True, False))
        else:
            served.receive(message)

    receive = on_message
    link.send(messages.Hello(name, 0, ()))
    await gone.wait()
    serving.cancel()
    await asyncio.wait([serving])


async def across(n: int) -> list[float]:
    """Measure hand-overs between stages in separate processes, with the server in between, in seconds."""
    remotes, processes = list[RemoteWorker](), list[asyncio.subprocess.Process]()
    report: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()

    def receiver(remote: RemoteWorker) -> Callable[[messages.Message], None]:
        def receive(message: messages.Message) -> None:
            if isinstance(message, messages.Emit) and message.run == "took":
                assert isinstance(message.chunk, Tensors)
                report.set_result(message.chunk.fields["s"])
            else:
                remote.receive(message)

        return receive

    for name in ("first", "second"):
        ours, theirs = socket.socketpair()
        with theirs:
            fd = str(theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.overhead", "--child", fd, name, pass_fds=[theirs.fileno()]
            )
        remote = RemoteWorker(name)
        link = links.SocketLink(receiver(remote), remote.lost)
        await asyncio.get_running_loop().create_connection(lambda link=link: link, sock=ours)
        remote.link = link
        remotes.append(remote)
        processes.append(process)
    await asyncio.gather(*(remote.hello for remote in remotes))
    pools = [pool(first(ignore), remotes[0]), pool(second(ignore), remotes[1])]
    async with Orchestrator(pools, 30).open(live_request(), paced(n, 0.002)) as chunks:
        async for _ in chunks:
            pass
    remotes[1].link.send(messages.Stop())  # pyright: ignore[reportOptionalMemberAccess]
    took = await report
    for remote, process in zip(remotes, processes, strict=True):
        remote.close()
        await process.wait()
    return took


async def stepping(batch: int, n: int, read: bool = True) -> float:
    """Return the duration in seconds of a step of ``batch`` requests, the best of ``n`` runs of 60 steps.

    It includes the outbox, which grows if the link is not read. A run is shorter than a time slice, so the best one was
    not interrupted.
    """
    left, right = socket.socketpair()
    link = links.SocketLink(lambda _: None, lambda: None)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=left)
    done: list[float] = []
    served = worker([second(done.append)], link.send)
    serving = asyncio.create_task(served.serve())
    await asyncio.sleep(0)
    drain, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=right)
    if not read:
        drain.pause_reading()
    for i in range(batch):
        served.receive(messages.Open(str(i), live_request(), ("second",), 1 << 30))
    fed = row()
    spent_s: list[float] = []
    for _ in range(n + 1):
        done.clear()
        for i in range(batch):
            for _ in range(60):
                served.receive(messages.Feed(str(i), fed))
        began_s = time.perf_counter()
        while len(done) < batch * 60:  # noqa: ASYNC110 - the event loop's turns are measured
            await asyncio.sleep(0)
        spent_s.append((time.perf_counter() - began_s) / 60)
    serving.cancel()
    await asyncio.wait([serving])
    link.close()
    drain.close()
    await asyncio.sleep(0.01)
    return min(spent_s)


BESIDE = ("step at batch 17", "the same, the link is not read")


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return microseconds, one value per round."""
    found: dict[str, list[float]] = {name: [] for name in (*BARS, *BESIDE)}
    for _ in range(rounds):
        found["hand-over in process, p50"].append(statistics.median(await in_process(CHUNKS)) * 1e6)
        found["hand-over across processes, p50"].append(statistics.median(await across(CHUNKS)) * 1e6)
        one, many = await stepping(1, 20), await stepping(17, 20)
        found["step at batch 17"].append(many * 1e6)
        found["the same, the link is not read"].append(await stepping(17, 20, read=False) * 1e6)
        found["step at batch 1"].append(one * 1e6)
        found["each further sequence"].append((many - one) / 16 * 1e6)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures of every round as JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=2, metavar=("FD", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        event_loop.run(child(socket.socket(fileno=int(options.child[0])), options.child[1]))
        return 0
    found = event_loop.run(measure(options.rounds))
    if options.json:
        print(json.dumps({"microseconds": {name: found[name] for name in BARS}, "bars": BARS}))
        return 0
    print(f"{'microseconds':34}{'best':>8}{'median':>8}{'bar':>8}")
    for name, figures in found.items():
        print(f"{name:34}{min(figures):8.1f}{statistics.median(figures):8.1f}{BARS.get(name, ''):8}")
    return int(any(min(found[name]) > bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
