"""Measure the cost of a session for the server's front-end process, and the number of sessions that one process can
hold.

    python -m benchmarks.fronts [sockets] [microphones] [calls] [behind] [--seconds N] [--rounds N] [--counts N …]
                                [--resume FILE]

sockets      WebSocket sessions, a tenth of them continuously answered; the others are idle
microphones  the same with open microphones, so that the server runs voice detection for each
calls        WebRTC calls with open microphones, a tenth of them continuously answered
behind       the sessions of `microphones`, on two servers behind HAProxy with deploy/haproxy.cfg

Answers come from the scripted family, which computes almost nothing, so the result is independent of the model. Cores
are CPU time divided by wall time: of the front end, its workers, the proxy, and the clients (all in this process).
Memory is the front end's proportional share (smaps_rollup). Each round starts a new server, and the medians of the
rounds are reported. The knee is the first count at which, in most rounds, the server had an underrun or the p95 of the
first sound exceeded LATE_S. The line is fitted to the counts below it. ``--resume`` skips rounds that are in the file.
Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from app.bench.subject import Subject, running
from app.client import Response, webrtc, websocket
from app.client.client import Client
from benchmarks.media import Way, converse, cpu_s, holds, open_client
from engine import SPEAKER_RATE_HZ
from engine.aio.event_loop import run, settle

CONFIG = """
model: script
workers:
  - {stages: [ears, thinker, talker, code2wav], max_batch: 64}
chunks: {first: 1, growth: 1.5, steady: 12}
server: {limits: {sessions: 1000, calls: 100, offers: 100}}
"""
PROXY = Path(__file__).parents[1] / "deploy" / "haproxy.cfg"
SHARE = 10  # one in SHARE clients is answered
LATE_S = 0.25
WARM_S = 3.0
AT_ONCE = 10  # clients that connect at the same time


@dataclass(frozen=True, slots=True)
class Load:
    opened: Way
    counts: Sequence[int]
    microphones: bool = False
    servers: int = 1


LOADS = {
    "sockets": Load(websocket.opened, (50, 100, 150, 200, 300, 400, 500)),
    "microphones": Load(websocket.opened, (20, 40, 60, 80, 120, 160), microphones=True),
    "calls": Load(webrtc.opened, (5, 10, 15, 20, 30, 40), microphones=True),
    "behind": Load(websocket.opened, (40, 60, 80), microphones=True, servers=2),
}


@dataclass(frozen=True, slots=True)
class Point:
    """Measurements of a load with ``count`` clients; ``late_s`` is the p95 of the first sound."""

    load: str
    count: int
    answers: float
    underruns: float
    late_s: float
    front_cores: float
    worker_cores: float
    proxy_cores: float
    client_cores: float
    memory_mb: float

    @property
    def holds(self) -> bool:
        return self.answers > 0 and not self.underruns and self.late_s <= LATE_S


MEASURES = [one.name for one in fields(Point) if one.type == "float"]
HEAD = " count answers dry  first sound p95   front workers proxy clients  memory"


@dataclass(frozen=True, slots=True)
class House:
    """The servers under test, and the address for clients."""

    servers: Sequence[Subject]
    url: str
    proxy: int | None = None

    def cpus_s(self) -> list[float]:
        """Return the CPU time of front ends, workers, proxy and clients."""
        fronts = [psutil.Process(one.pid) for one in self.servers]
        workers = [child for front in fronts for child in front.children(recursive=True)]
        proxy = [] if self.proxy is None else [psutil.Process(self.proxy)]
        return [sum(map(cpu_s, group)) for group in (fronts, workers, proxy, [psutil.Process()])]

    def memory_mb(self) -> float:
        return sum(pss_mb(one.pid) for one in self.servers)

    def underruns(self) -> float:
        return sum(holds(one).underruns for one in self.servers)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", choices=[*LOADS, []], help="which loads (default: all)")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds per count")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per count")
    parser.add_argument("--counts", type=int, nargs="+", help="counts to use instead of the load's own")
    parser.add_argument("--resume", type=Path, help="file with earlier results, to which new ones are added")
    arguments = parser.parse_args()
    straight = True
    for name in arguments.loads or list(LOADS):
        points, counts = known(arguments.resume, name), arguments.counts or LOADS[name].counts
        print(f"{name}: load average {os.getloadavg()[0]:.1f} before")
        print(HEAD)
        while left := [count for count in counts if rounds_of(points, count) < arguments.rounds]:
            fewest = min(rounds_of(points, count) for count in left)
            todo = [count for count in left if rounds_of(points, count) == fewest]
            await measure(name, todo, arguments.seconds, points, arguments.resume)
        straight &= judge(points)
    return int(not straight)


async def measure(name: str, counts: Sequence[int], seconds: float, points: list[Point], file: Path | None) -> None:
    """Measure a load once at each count, print the results and save them."""
    with house(LOADS[name]) as one:
        for count in counts:
            points.append(await at(name, count, one, seconds))
            show(points[-1])
            keep(file, points[-1])


def rounds_of(points: Sequence[Point], count: int) -> int:
    return sum(point.count == count for point in points)


@contextmanager
def house(load: Load) -> Generator[House]:
    """Start the servers of a load, with a proxy in front if there are several."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = folder / "fronts.yaml"
        config.write_text(CONFIG)
        names = ("a", "b")[: load.servers]
        changes = [{"server.name": name, "server.trusted_proxies": ["127.0.0.1"]} for name in names]
        servers = [stack.enter_context(running(str(config), changes=one)) for one in changes]
        if len(servers) == 1:
            yield House(servers, servers[0].url)
        else:
            yield stack.enter_context(behind_proxy(servers, folder))


@contextmanager
def behind_proxy(servers: Sequence[Subject], folder: Path) -> Generator[House]:
    """Run HAProxy in front of servers. Exits if it is not installed."""
    if shutil.which("haproxy") is None:
        sys.exit("behind: haproxy is not installed (apt install haproxy)")
    port = psutil.Process().pid % 20_000 + 20_000
    places = {f"PARLEY_{name}": one.url.removeprefix("ws://") for name, one in zip("AB", servers, strict=True)}
    own = {"PARLEY_BIND": f"127.0.0.1:{port}", "PARLEY_ADMIN": str(folder / "admin.sock")}
    process = subprocess.Popen(["haproxy", "-db", "-q", "-f", str(PROXY)], env={**os.environ, **places, **own})
    try:
        time.sleep(2.0)  # its first checks
        yield House(servers, f"ws://127.0.0.1:{port}", process.pid)
    finally:
        process.kill()
        process.wait()


async def at(name: str, count: int, house: House, seconds: float) -> Point:
    """Measure ``count`` clients, of which one in SHARE is answered."""
    load, firsts_s = LOADS[name], list[float]()
    async with AsyncExitStack() as stack:
        clients = await open_clients(load, house.url, count, stack)

        def heard(answer: Response) -> None:
            if answer.ttfa_s is not None:
                firsts_s.append(answer.ttfa_s)

        settle()  # a full garbage collection would delay all clients at once
        async with asyncio.TaskGroup() as tasks:
            end_s = time.monotonic() + WARM_S + seconds
            talking = max(1, round(count / SHARE))
            for i, client in enumerate(clients[:talking]):
                tasks.create_task(converse(client, end_s, heard, i / talking * WARM_S))
            if load.microphones:
                silence = np.zeros(int((WARM_S + seconds) * SPEAKER_RATE_HZ), np.int16)
                for client in clients:
                    tasks.create_task(client.speak(silence))
            await asyncio.sleep(WARM_S)
            firsts_s.clear()
            begun_s, before, dry = time.monotonic(), house.cpus_s(), await asyncio.to_thread(house.underruns)
            await asyncio.sleep(seconds - 0.5)
            took_s, after = time.monotonic() - begun_s, house.cpus_s()
            dry = await asyncio.to_thread(house.underruns) - dry
            memory_mb = await asyncio.to_thread(house.memory_mb)
        front, workers, proxy, ours = ((now - then) / took_s for now, then in zip(after, before, strict=True))
    late_s = float(np.percentile(firsts_s, 95)) if firsts_s else float("nan")
    return Point(name, count, len(firsts_s), dry, late_s, front, workers, proxy, ours, memory_mb)


async def open_clients(load: Load, url: str, count: int, stack: AsyncExitStack) -> list[Client]:
    """Connect ``count`` clients, AT_ONCE at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> Client:
        async with room:
            return await stack.enter_async_context(open_client(load.opened, url))

    return list(await asyncio.gather(*(one() for _ in range(count))))


def pss_mb(pid: int) -> float:
    """Return a process's proportional set size in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def known(file: Path | None, name: str) -> list[Point]:
    """Return the points of a load in a file."""
    points = list[Mapping[str, Any]]()
    with suppress(FileNotFoundError):
        points = [json.loads(line) for line in file.read_text().splitlines()] if file is not None else []
    return [Point(**one) for one in points if one["load"] == name]


def keep(file: Path | None, point: Point) -> None:
    if file is not None:
        with file.open("a") as out:
            out.write(json.dumps(asdict(point)) + "\n")


def show(point: Point) -> None:
    print(
        f"{point.count:6} {point.answers:7.0f} {point.underruns:3.0f} {1000 * point.late_s:13.0f} ms  "
        f"{point.front_cores:6.3f} {point.worker_cores:7.3f} {point.proxy_cores:5.3f} {point.client_cores:7.3f}  "
        f"{point.memory_mb:4.0f} MB",
        flush=True,
    )


def judge(points: Sequence[Point]) -> bool:
    """Print the medians, the knee and the fitted lines. Returns whether they are straight."""
    rounds = [[point for point in points if point.count == count] for count in sorted({one.count for one in points})]
    print("  the medians of the rounds:")
    medians = [middle(one) for one in rounds]
    for median in medians:
        show(median)
    full = (i for i, one in enumerate(rounds) if 2 * sum(not point.holds for point in one) > len(one))
    knee = next(full, len(rounds))
    below = medians[:knee]
    print(f"  knee: {medians[knee].count if knee < len(medians) else f'none up to {medians[-1].count}'}")
    if len(below) < 3:
        print("  too few counts below the knee for a line")
        return False
    counts = [point.count for point in below]
    base, each, off = line(counts, [point.front_cores for point in below])
    rest_mb, each_mb, off_mb = line(counts, [point.memory_mb for point in below])
    print(f"  cores: {base:.3f} + {each:.5f} each, {1 / each:.0f} sessions a core; off the line by at most {off:.1%}")
    print(f"  memory: {rest_mb:.0f} MB + {each_mb:.3f} MB each; off the line by at most {off_mb:.1%}")
    return max(off, off_mb) <= 0.1


def middle(points: Sequence[Point]) -> Point:
    """Return the median of each measurement."""
    values = {name: float(np.median([getattr(one, name) for one in points])) for name in MEASURES}
    return Point(points[0].load, points[0].count, **values)


def line(counts: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Fit a line, and return its intercept, its slope, and the largest relative deviation.

    The fit minimizes the squares of the relative deviations.
    """
    each, base = np.polyfit(counts, values, 1, w=1 / np.asarray(values))
    off = max(abs(base + each * count - value) / value for count, value in zip(counts, values, strict=True))
    return float(base), float(each), float(off)


if __name__ == "__main__":
    sys.exit(run(main()))
