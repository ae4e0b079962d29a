"""What a server holds between sessions, and which of it grows: memory, files, threads, tasks, sessions, slots.

Knows no client. A sample is taken when nobody is connected and every slot is back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from urllib.request import urlopen

import psutil

from app.bench.subject import Subject

QUIET_S = 20.0
"""How long sessions may take to end after their clients have gone: the longest is a half-open peer's."""

GROWTH = 0.04
SPARE_MB = 12.0
"""Memory may be so much higher at the end: the allocators' own, measured at rest after runs of different lengths."""

FILES = 3  # a connection of the scrape itself, and what a library opens on first use


@dataclass(frozen=True, slots=True)
class Sample:
    """A server at rest; counts and megabytes of all its processes."""

    memory_mb: float
    files: int
    threads: int
    tasks: int
    sessions: int
    leased: int


def sample(server: Subject, quiet_s: float = QUIET_S) -> Sample:
    """Wait until the server is at rest, and look; after a while, look all the same."""
    until_s = time.monotonic() + quiet_s
    while (found := _look(server)).sessions or found.leased:
        if time.monotonic() > until_s:
            break
        time.sleep(0.1)
    time.sleep(0.5)  # what ends with a session ends in the loop's next turns
    return _look(server)


def swollen(samples: Sequence[Sample]) -> dict[str, str]:
    """What is not flat from the first sample to the last, and from where to where."""
    first, last = samples[0], samples[-1]
    bounds = {
        "files": first.files + FILES,
        "threads": first.threads + 2,
        "tasks": first.tasks,
        "sessions": 0,
        "leased": 0,
    }
    found = {name: f"{getattr(first, name)} → {getattr(last, name)}" for name in bounds if _over(last, name, bounds)}
    begun = median(one.memory_mb for one in samples[:2])
    ended = median(one.memory_mb for one in samples[-2:])
    if ended > begun * (1 + GROWTH) + SPARE_MB:
        found["memory"] = f"{begun:.0f} → {ended:.0f} MB"
    return found


def _over(last: Sample, name: str, bounds: dict[str, int]) -> bool:
    return getattr(last, name) > bounds[name]


def _look(server: Subject) -> Sample:
    page = metrics(server)
    root = psutil.Process(server.pid)
    memory = files = threads = 0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.Error):
            memory += process.memory_full_info().uss
            files += process.num_fds()
            threads += process.num_threads()
    tasks, sessions = int(page["parley_tasks"]), int(page["parley_sessions"])
    leased = int(sum(value for name, value in page.items() if name.startswith("parley_stage_leased")))
    return Sample(memory / 1e6, files, threads, tasks, sessions, leased)


def metrics(server: Subject) -> dict[str, float]:
    """Its figures by name, labels included."""
    with urlopen(server.url.replace("ws", "http", 1) + "/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {match[1]: float(match[2]) for line in lines if (match := re.fullmatch(r"([^# ]\S*) (\S+)", line))}
