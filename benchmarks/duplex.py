"""Measure a duplex model: the step loop's overhead per frame, and the sessions that it holds without a late frame.

    python -m benchmarks.duplex [-c configs/script_duplex.yaml] [--sessions 8,16,32,64] [--minutes 10] [--simulated]

*Overhead* is the processor time of the worker's step loop per frame and session, with a stage that computes nothing:
four packets of sound received, the frame scheduled, and its output encoded and written to a socket. Empty turns of the
event loop do not count. Time is simulated, so nothing waits. *Held* opens this many sessions in a real deployment, each
with a microphone that sends 20 ms packets in real time, and counts frames that were late, skipped or unread.
``--step-ms`` and ``--each-ms`` simulate a model's step: milliseconds per step, and per session in it. The table's
column *fit* is the number of sessions that the engine admits by the measured step time.

With ``--simulated``, *held* serves that stage in this process, on a simulated processor that has nothing else to do:
time is the processor time of the step loop, and idle time is skipped. So other programs do not change the result.

Exits with 1 if the overhead misses its bar, or if a measured number of sessions that the engine admits has a late
frame.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from benchmarks.program import check_bar, numbers, parser, status
from engine import Duplex, DuplexCounts, Engine, Request, Speech, load_config
from engine.aio import event_loop
from engine.chunk import Audio, Chunk
from engine.deployment.config import ChunkSpec, EngineSpec
from engine.deployment.describe import written_out
from engine.errors import EngineError
from engine.ipc import links, messages
from engine.stream import Stream
from engine.worker.loop.worker import Worker
from engine.worker.models.script_duplex import ScriptDuplex
from engine.worker.process.duplex_capacity import sessions_held
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

OVERHEAD_US = 200.0
PACKET_S = 0.02
PACKET = np.full(round(PACKET_S * Duplex().rate_hz), 3000, np.int16)
SILENCE = Audio(np.zeros(1920, np.float32))
SETTLED_S = 2.0  # after which the heartbeat tells the counts of all sessions
SHIFTS = 4  # groups of microphones, whose packets come at different times
TURNS = 3  # of the event loop for each packet: its timer, the step, and the wait for the next frame


class OwnProcessor:
    """The time on a processor without other programs: this thread's processor time. Idle time is skipped."""

    def __init__(self, used_s: Callable[[], float] = time.thread_time) -> None:
        self._used_s = used_s
        self._skipped_s = 1000 - used_s()

    def __call__(self) -> float:
        return self._used_s() + self._skipped_s

    def until(self, at_s: float) -> None:
        self._skipped_s += max(0.0, at_s - self())


class Silent(ScriptDuplex):
    """A duplex stage that computes nothing. Its steps take simulated time."""

    def __init__(self, slots: int, clock: OwnProcessor, step_s: float = 0.0, each_s: float = 0.0) -> None:
        super().__init__(StageConfig(slots=slots))
        self._clock = clock
        self._takes_s = step_s, each_s

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        step_s, each_s = self._takes_s
        if took_s := step_s + each_s * len(reqs):
            self._clock.until(self._clock() + took_s)
        return [(SILENCE,) for req in reqs if req.pending.popleft() is not None]


def session(id: str) -> Request:
    return Request(id=id, session=id, messages=(), live=True, max_audio_s=math.inf)


@asynccontextmanager
async def serving(stage: Silent, clock: OwnProcessor) -> AsyncGenerator[Worker]:
    """Serve a stage on the simulated processor. Its output goes over a socket."""
    loop = asyncio.get_running_loop()
    loop.time = clock  # type: ignore[method-assign]
    left, right = socket.socketpair()
    link = links.SocketLink(lambda _: None, lambda: None)
    await loop.create_connection(lambda: link, sock=left)
    drain, _ = await loop.create_connection(asyncio.Protocol, sock=right)
    slots = stage.info.slots
    worker = Worker({"": stage}, ChunkSpec(), {"": slots}, link.send, clock=clock)
    served = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)
    try:
        yield worker
    finally:
        served.cancel()
        await asyncio.wait([served])
        link.close()
        drain.close()
        await asyncio.sleep(0)


async def simulated(stage: Silent, clock: OwnProcessor, seconds: float) -> tuple[DuplexCounts, float]:
    """Hold a session in each slot. Returns the counts, and the microseconds of the step loop per frame and session."""
    ticks = round(seconds / PACKET_S) * SHIFTS
    async with serving(stage, clock) as worker:
        empty_s = await run_ticks(worker, clock, 1000, 0)
        for n in range(stage.info.slots):
            worker.receive(messages.Open(str(n), session(str(n)), ("",), 1 << 40))
        spent_s = await run_ticks(worker, clock, ticks, stage.info.slots)
        counts = worker.beat("").duplex[""]
    return counts, (spent_s - empty_s / 1000 * ticks) / counts.frames * 1e6


async def run_ticks(worker: Worker, clock: OwnProcessor, ticks: int, sessions: int) -> float:
    """Let time pass, and send packets to these sessions. Returns the seconds of processor time."""
    fed = Speech(PACKET)
    began_s, cpu_s = clock(), time.thread_time()
    for tick in range(ticks):
        clock.until(began_s + tick * PACKET_S / SHIFTS)
        for n in range(tick % SHIFTS, sessions, SHIFTS):
            worker.receive(messages.Feed(str(n), fed))
        for _ in range(TURNS):
            await asyncio.sleep(0)
    return time.thread_time() - cpu_s


async def converse(engine: Engine, sessions: int, seconds: float) -> tuple[DuplexCounts, float]:
    """Hold this many sessions. Returns the counts of the time in which all of them ran, and the step's milliseconds."""
    microphones = [Stream() for _ in range(sessions)]

    async def read(n: int) -> None:
        async with engine.open(session(str(n)), microphones[n]) as chunks:
            async for _ in chunks:
                pass

    async def speak() -> tuple[DuplexCounts, float]:
        began_s = time.monotonic()
        before = DuplexCounts()
        for packet in range(round((seconds + 2 * SETTLED_S) / PACKET_S)):
            await asyncio.sleep(max(0.0, began_s + packet * PACKET_S - time.monotonic()))
            for microphone in microphones:
                microphone.put(Speech(PACKET))
            if packet == round(SETTLED_S / PACKET_S):
                before = counts_of(engine)
        after = counts_of(engine)
        for microphone in microphones:
            microphone.close()
        fields = DuplexCounts.__struct_fields__
        passed = DuplexCounts(**{name: getattr(after, name) - getattr(before, name) for name in fields})
        return passed, max(replica.step_ms for replica in engine.replicas())

    async with asyncio.TaskGroup() as tasks:
        for n in range(sessions):
            tasks.create_task(read(n))
        speaking = tasks.create_task(speak())
    return speaking.result()


def counts_of(engine: Engine) -> DuplexCounts:
    """Return the counts of all replicas together."""
    total = DuplexCounts()
    for replica in engine.replicas():
        for name in DuplexCounts.__struct_fields__ if replica.duplex is not None else ():
            setattr(total, name, getattr(total, name) + getattr(replica.duplex, name))
    return total


async def hold(spec: EngineSpec, sizes: Sequence[int], seconds: float) -> bool:
    """Print a row for each number of sessions. Returns whether all that the engine admits had no late frame."""
    print(HEADER)
    good = True
    for size in sizes:
        async with Engine(spec) as engine:
            (fit,) = engine.slots(session("")).values()
            if size > fit:
                print(f"{size:8} {fit:5} refused: more sessions than fit", flush=True)
                break
            counts, step_ms = await converse(engine, size, seconds)
        good = show(size, fit, step_ms, counts) and good
    return good


def hold_simulated(options: argparse.Namespace) -> bool:
    """Do the same as ``hold`` on a simulated processor."""
    print(HEADER)
    step_s, each_s = options.step_ms / 1000, options.each_ms / 1000
    probe = OwnProcessor()
    fit = sessions_held(Silent(max(options.sessions), probe, step_s, each_s), probe)
    good = True
    for size in options.sessions:
        clock = OwnProcessor()
        stage = Silent(size, clock, step_s, each_s)
        counts, _ = asyncio.run(simulated(stage, clock, options.minutes * 60))
        good = show(size, fit, (step_s + each_s * size) * 1000, counts) and good
    return good


HEADER = f"{'sessions':>8} {'fit':>5} {'step ms':>8} {'frames':>8} {'late':>6} {'skipped':>8} {'concealed':>10} unread"


def show(size: int, fit: int, step_ms: float, counts: DuplexCounts) -> bool:
    """Print a row. Returns whether no frame was late, or more sessions than fit were held."""
    found = f"{counts.frames:8} {counts.late:6} {counts.skipped:8} {counts.concealed:10} {counts.unread}"
    print(f"{size:8} {fit:5} {step_ms:8.2f} {found}", flush=True)
    return size > fit or not (counts.late or counts.skipped or counts.unread)


def deployment(options: argparse.Namespace) -> EngineSpec:
    spec = written_out(load_config(options.config))
    simulated = {"step_s": options.step_ms / 1000, "request_s": options.each_ms / 1000}
    times = {name: value for name, value in simulated.items() if value}
    slots = max(options.sessions)
    return replace(
        spec,
        stages=tuple(replace(stage, options={**stage.options, **times}) for stage in spec.stages),
        workers=tuple(replace(worker, max_batch=slots) for worker in spec.workers),
    )


def main() -> int:
    made = parser(__doc__)
    made.add_argument("-c", "--config", default="configs/script_duplex.yaml", help="a YAML file")
    made.add_argument("--sessions", type=numbers, default=(8, 16, 32, 64), help="numbers of sessions to hold")
    made.add_argument("--minutes", type=float, default=10.0, help="how long each number is held")
    made.add_argument("--step-ms", type=float, default=0.0)
    made.add_argument("--each-ms", type=float, default=0.0)
    made.add_argument("--simulated", action="store_true", help="on a simulated processor, without waiting")
    options = made.parse_args()

    def measure() -> bool:
        results = [
            check_bar(f"overhead per frame, {sessions} sessions", overhead_us(sessions), "<=", OVERHEAD_US, "us")
            for sessions in (1, 16, 64)
        ]
        if options.simulated:
            return all([*results, hold_simulated(options)])
        return all([*results, event_loop.run(hold(deployment(options), options.sessions, options.minutes * 60))])

    return status(measure)


def overhead_us(sessions: int, seconds: float = 20.0) -> float:
    """Return the microseconds of the step loop per frame and session: the best of three rounds, disturbed least."""
    rounds: list[float] = []
    for _ in range(3):
        clock = OwnProcessor(lambda: 0.0)  # reading the real one takes longer than the measured work
        rounds.append(asyncio.run(simulated(Silent(sessions, clock), clock, seconds))[1])
    return min(rounds)


if __name__ == "__main__":
    sys.exit(main())
