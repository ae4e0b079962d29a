"""The number of users that the server talks to at once: WebRTC calls, and WebSocket sessions of which some are
answered.

    python -m benchmarks.media [calls] [sockets] [--seconds N]

calls     10 calls, each asking and listening to one answer after the other, its microphone open and silent
sockets   200 sessions, of which 20 do that; the others are open and say nothing

Answers are the scripted family's, which takes next to no CPU: what is measured is the way of sound and events. An
underrun is a moment in which a player without a buffer of its own, in the client or by the server's count, has nothing
to play. Cores are CPU time by wall time: of the server's process, and of this one, which is all clients. Left behind is
what the server still holds after they have gone: sessions, threads, open files, and memory grown since the round
before.
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
"""Seconds from the end of an answer to the next question. Behind a call's answer come 100 ms of silence, so that no
player stretches its end; a question in their midst would be answered behind them, which is nobody's underrun."""

MEMORY_MB = 30.0  # the memory that allocators keep differs by as much from one round to the next
WARM_UPS = 2
"""Rounds before the one that counts, and behind it where memory has grown: a leak grows each time. The allocator keeps
45 to 60 MB of what 200 sessions took at their busiest moment, once: six rounds left 227, 273, 266, 274, 275 and 275 MB,
and each time 172 after a collection and malloc_trim."""

Way = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Load:
    """``talking`` of ``clients`` are being answered all the time."""

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
    """The result of one round."""

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
    """The things that the server holds at a moment."""

    sessions: float
    underruns: float
    threads: int
    files: int
    memory_mb: float


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", choices=[*LOADS, []], help="which; all without any")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each round lasts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "media.yaml"
        config.write_text(CONFIG)
        names = arguments.loads or list(LOADS)
        results = [await measure(LOADS[name], str(config), arguments.seconds) for name in names]
    return int(not all(results))


async def measure(load: Load, config: str, seconds: float) -> bool:
    """Print the results of a load; return whether nobody ran dry and nothing was left behind."""
    with running(config) as server:
        for _ in range(WARM_UPS):
            await one_round(load, server, min(5.0, seconds))
        before = await settled(server)
        settle()  # a search through all that is loaded would make all clients wait at once
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
    """Ask again and again, and listen to the end of each answer; begin after ``after_s``."""
    await asyncio.sleep(after_s)
    while time.monotonic() < until_s:
        answer = await client.ask(ANSWER)
        heard(answer)
        await asyncio.sleep(max(0.0, answer.player.ends_s - time.monotonic()) + BREATH_S)


async def settled(server: Subject) -> Holds:
    """Return what the server holds once it has noticed that they are gone."""
    for _ in range(100):
        held = await asyncio.to_thread(holds, server)
        if not held.sessions:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    return await asyncio.to_thread(holds, server)


def holds(server: Subject) -> Holds:
    process = psutil.Process(server.pid)
    threads, files = process.num_threads(), process.num_fds()  # before the connection that is opened for the rest
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
