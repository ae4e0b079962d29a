"""Calls on a machine that is busy with other work: a server whose lead grows where it comes late, beside one whose does
not.

    python -m benchmarks.late_calls [--minutes 5] [--calls 3]

Both servers run at once and have the same load beside them: start it before (``make test`` in another checkout). Each
has so many calls, which ask and listen to one answer of the scripted family after the other; that takes next to no CPU,
so sound waits for its sender alone. An underrun is counted by the server, where a packet leaves after its listener has
played all that was sent; and by the listener's player, which also sees what this process came late to read. Behind each
answer come 100 ms of silence, which a player may miss as well.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from urllib.request import urlopen

from app.bench.subject import Subject, running
from app.client import Client, webrtc
from engine.loop import run, settle

FIXED = ("-c", "import app.lateness; app.lateness.MOST_S = 0.0; from app.cli import cli; cli()")
SERVERS: dict[str, Sequence[str]] = {"fixed, 40 ms": FIXED, "grows where it is late": ("-m", "app")}
ANSWER = "long 120"
BREATH_S = 0.2
BEAT_S = 0.02


@dataclass(slots=True)
class Heard:
    """What the listeners of one server heard."""

    seconds: float = 0.0
    gaps_s: list[float] = field(default_factory=list[float])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--calls", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running("script", program=program)) for name, program in SERVERS.items()}
        heard = {name: Heard() for name in servers}
        lag_s = run(_all(servers, heard, 60 * arguments.minutes, arguments.calls))
        print("| lead | sound | underruns by the server, an hour | by the listeners, an hour | longest gap |")
        print("|---|---|---|---|---|")
        for name, one in heard.items():
            hours, count = one.seconds / 3600, underruns(servers[name].url)
            row = f"{hours:.2f} h", f"{count / hours:.0f} ({count:.0f})", f"{len(one.gaps_s) / hours:.0f}"
            print(f"| {name} | {' | '.join(row)} | {1000 * max(one.gaps_s, default=0.0):.0f} ms |")
    load = f"load {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
    print(f"{load}; this process came {1000 * lag_s:.0f} ms late, at most")


async def _all(servers: dict[str, Subject], heard: dict[str, Heard], seconds: float, calls: int) -> float:
    """Listen to all servers at once; the longest time for which this process read nothing."""
    settle()
    until_s, lag_s = time.monotonic() + seconds, 0.0
    async with asyncio.TaskGroup() as tasks:
        for name, server in servers.items():
            for _ in range(calls):
                tasks.create_task(_call(server.url, until_s, heard[name]))
        while (begun_s := time.monotonic()) < until_s:
            await asyncio.sleep(BEAT_S)
            lag_s = max(lag_s, time.monotonic() - begun_s - BEAT_S)
    return lag_s


async def _call(url: str, until_s: float, heard: Heard) -> None:
    async with webrtc.opened(url) as line, Client(line) as client:
        while time.monotonic() < until_s:
            player = (await client.ask(ANSWER)).player
            heard.seconds += player.seconds
            heard.gaps_s += [ended_s - begun_s for begun_s, ended_s in player.gaps]
            await asyncio.sleep(BREATH_S)


def underruns(url: str) -> float:
    """How often listeners ran dry by the server's own count."""
    with urlopen(url.replace("ws", "http", 1) + "/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("parley_underruns_total"))


if __name__ == "__main__":
    main()
