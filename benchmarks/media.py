"""Measure how many users the server can talk to at once: WebRTC calls, and WebSocket sessions.

    python -m benchmarks.media [calls] [sockets] [--seconds N]

calls     10 calls with open, silent microphones, each listening to one answer after the other
sockets   200 sessions, of which 20 do that; the others are idle

Answers come from the scripted family, which takes almost no CPU, so audio and event transport are measured. An underrun
is a moment in which a player without a buffer has nothing to play, counted by the client and by the server. Cores are
CPU time divided by wall time, of the server's process and of this one (all clients). "Left behind" is what the server
still holds after the clients have left: sessions, threads, open files, and memory growth since the previous round.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil

from app.bench.subject import Subject, running
from app.client import Response, webrtc, websocket
from app.client.client import Client
from engine import SPEAKER_RATE_HZ
from engine.aio.event_loop import run, settle

CONFIG = """
model: script
workers:
  - {stages: [ears, thinker, talker, code2wav], max_batch: 64}
chunks: {first: 1, growth: 1.5, steady: 12}
server: {limits: {sessions: 300, calls: 32}}
"""
ANSWER = "long 12"
PIECE_S = 0.02
BREATH_S = 0.2
"""Seconds from the end of an answer to the next question. An answer in a call is followed by 100 ms of silence; a
question during these would cause an underrun that is not the server's fault.
"""

MEMORY_MB = 30.0  # normal variation of allocator memory between rounds
WARM_UPS = 2
"""Rounds before the measured one, and after it if memory has grown; a leak grows in each round. The allocator keeps 45
to 60 MB of the peak memory of 200 sessions once: six rounds ended with 227, 273, 266, 274, 275 and 275 MB, and each
time 172 MB after a collection and malloc_trim.
"""

Way = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Load:
    """``clients`` sessions, of which ``talking`` are continuously answered."""

    name: str
    clients: int
    talking: int
    opened: Way
    microphones: bool


LOADS = {
    "calls": Load("10 WebRTC calls", 10, 10, webrtc.opened, True),
    "sockets": Load("200 WebSocket sessions, 20 of them answered", 200, 20, websocket.opened, False),
}


@dataclass(slots=True)
class Round:
    """Results of one round."""

    answers: int = 0
    underruns: int = 0
    dry_s: float = 0.0
    sound_s: float = 0.0
    server_cores: float = 0.0
    client_cores: float = 0.0

    def add(self, answer: Response) -> None:
        self.answers += 1
        self.underruns += answer.player.underruns
        self.dry_s += answer.player.dry_s
        self.sound_s += answer.player.seconds


@dataclass(frozen=True, slots=True)
class Holds:
    """Resources that the server holds at a moment."""

    sessions: float
    underruns: float
    threads: int
    files: int
    memory_mb: float


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", choices=[*LOADS, []], help="which loads (default: both)")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds per round")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "media.yaml"
        config.write_text(CONFIG)
        names = arguments.loads or list(LOADS)
        results = [await measure(LOADS[name], str(config), arguments.seconds) for name in names]
    return int(not all(results))


async def measure(load: Load, config: str, seconds: float) -> bool:
    """Print the results of a load. Returns whether there were no underruns and no leaks."""
    with running(config) as server:
        for _ in range(WARM_UPS):
            await one_round(load, server, min(5.0, seconds))
        before = await settled(server)
        settle()  # a full garbage collection would delay all clients at once
        result = await one_round(load, server, seconds)
        after = again = await settled(server)
        grown_mb = after.memory_mb - before.memory_mb
        for _ in range(WARM_UPS if grown_mb > MEMORY_MB else 0):  # a leak grows with every round
            last_mb = again.memory_mb
            await one_round(load, server, min(5.0, seconds))
            again = await settled(server)
            grown_mb = min(grown_mb, again.memory_mb - last_mb)
    leaks = after.sessions or after.threads > before.threads or after.files > before.files or grown_mb > MEMORY_MB
    counted = after.underruns - before.underruns
    print(f"{load.name}: {result.answers} answers, {result.sound_s:.0f} s of sound in {seconds:g} s")
    print(f"  underruns: {result.underruns} at the clients ({1000 * result.dry_s:.0f} ms), {counted:g} by the server")
    print(f"  cores: {result.server_cores:.2f} server, {result.client_cores:.2f} all clients")
    held = f"{after.threads - before.threads:+d} threads, {after.files - before.files:+d} files, {grown_mb:+.0f} MB"
    print(f"  left behind: {after.sessions:g} sessions, {held}")
    return not (leaks or result.underruns or counted)


async def one_round(load: Load, server: Subject, seconds: float) -> Round:
    result, ours, theirs = Round(), psutil.Process(), psutil.Process(server.pid)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(load.opened, server.url)) for _ in range(load.clients)]
        begun_s, before = time.monotonic(), (cpu_s(theirs), cpu_s(ours))
        async with asyncio.TaskGroup() as tasks:
            for client in clients[: load.talking]:
                tasks.create_task(converse(client, begun_s + seconds, result.add))
                if load.microphones:
                    tasks.create_task(client.speak(np.zeros(int(seconds * SPEAKER_RATE_HZ), np.int16)))
        took_s = time.monotonic() - begun_s
        result.server_cores, result.client_cores = (
            (now - then) / took_s for now, then in zip((cpu_s(theirs), cpu_s(ours)), before, strict=True)
        )
    return result


@asynccontextmanager
async def open_client(opened: Way, url: str) -> AsyncGenerator[Client]:
    async with opened(url) as line, Client(line) as client:
        yield client


async def converse(client: Client, until_s: float, heard: Callable[[Response], None], after_s: float = 0.0) -> None:
    """Ask repeatedly and listen to the end of each answer, beginning after ``after_s``."""
    await asyncio.sleep(after_s)
    while time.monotonic() < until_s:
        answer = await client.ask(ANSWER)
        heard(answer)
        await asyncio.sleep(max(0.0, answer.player.ends_s - time.monotonic()) + BREATH_S)


async def settled(server: Subject) -> Holds:
    """Return the server's resources once it has noticed that the clients left."""
    for _ in range(100):
        held = await asyncio.to_thread(holds, server)
        if not held.sessions:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    return await asyncio.to_thread(holds, server)


def holds(server: Subject) -> Holds:
    process = psutil.Process(server.pid)
    threads, files = process.num_threads(), process.num_fds()  # before opening the connection for the metrics
    with urlopen(server.url.replace("ws", "http", 1) + "/metrics") as answer:
        page = answer.read().decode()
    figures = dict(re.findall(r"(?m)^(\w+) (\S+)$", page))
    sessions, underruns = float(figures["parley_sessions"]), float(figures["parley_underruns_total"])
    return Holds(sessions, underruns, threads, files, process.memory_info().rss / 1e6)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    sys.exit(run(main()))
