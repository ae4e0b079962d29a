"""How long a process of this machine had to wait for a processor or a disk, as counted by Linux."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

READY = "R"  # runs, or is ready to run
ON_DISK = "D"  # waits for a disk, or for a page of its memory to be loaded from one


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """The processor time of a thread since it started."""

    computed_s: float
    """Seconds on a processor."""
    waited_s: float
    """Seconds in which it was ready to run but had no processor. Linux counts a wait only once it is over."""
    turns: int
    """How often it has received a processor."""
    state: str
    """Its present state as Linux's letter: READY, ON_DISK, or another one."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What a process did between two readings. Times are seconds."""

    elapsed_s: float = 0.0
    computed_s: float = 0.0
    """Processor time of all threads."""
    waited_s: float = 0.0
    """The longest time for which one of its threads waited for a processor."""
    on_disk_s: float = 0.0
    """The time for which a thread waited for a disk."""

    def __add__(self, other: Activity) -> Activity:
        return Activity(
            self.elapsed_s + other.elapsed_s,
            self.computed_s + other.computed_s,
            self.waited_s + other.waited_s,
            self.on_disk_s + other.on_disk_s,
        )

    @property
    def own_s(self) -> float:
        """The time in which no thread waited for a processor."""
        return self.elapsed_s - self.waited_s


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """A reading of all threads of a process."""

    at_s: float
    """The time of the reading, in monotonic seconds."""
    threads: Mapping[int, ThreadTime]
    stolen_s: float = 0.0
    """Steal time of this virtual machine: how long it waited for processors that its host gave to others.

    It is the sum of all processors, because Linux does not report it per process.
    """

    def since(self, before: ProcessorTime) -> Activity:
        """Return what the process did since an earlier reading.

        A thread that was ready at both readings and has received no processor between them waited all the time. Under
        heavy load one such wait lasts for seconds.
        """
        elapsed_s = self.at_s - before.at_s
        computed_s = 0.0
        waited_s = 0.0
        on_disk_s = 0.0
        for id, now in self.threads.items():
            was = before.threads.get(id, ThreadTime(0.0, 0.0, 0, ""))
            computed_s += now.computed_s - was.computed_s
            waited_s = max(waited_s, elapsed_s if _has_waited(was, now) else now.waited_s - was.waited_s)
            if was.state == now.state == ON_DISK:
                on_disk_s = elapsed_s
        stolen_s = self.stolen_s - before.stolen_s
        return Activity(elapsed_s, computed_s, min(elapsed_s, waited_s + stolen_s), on_disk_s)


def _has_waited(was: ThreadTime, now: ThreadTime) -> bool:
    ready = was.state == now.state == READY
    return ready and (was.turns, was.computed_s) == (now.turns, now.computed_s)


def processor_time(pid: int, root: Path = Path("/proc")) -> ProcessorTime | None:
    """Read the processor time of a process; None if it is unknown."""
    threads: dict[int, ThreadTime] = {}
    try:
        for folder in (root / str(pid) / "task").iterdir():
            try:
                threads[int(folder.name)] = _thread_time(folder)
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended
    except (OSError, ValueError, IndexError):
        return None
    return ProcessorTime(time.monotonic(), threads, stolen_s(root / "stat"))


def _thread_time(folder: Path) -> ThreadTime:
    computed_ns, waited_ns, turns = (folder / "schedstat").read_text().split()
    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]  # the name may contain anything
    return ThreadTime(int(computed_ns) / 1e9, int(waited_ns) / 1e9, int(turns), state)


def stolen_s(file: Path = Path("/proc/stat")) -> float:
    """Return the steal time of all processors; 0 if it is unknown."""
    try:
        _, *jiffies = file.read_text().partition("\n")[0].split()
        return int(jiffies[7]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


class OwnClock:
    """Measures time of this process, without the time for which one of its threads waited for a processor."""

    def __init__(
        self,
        read: Callable[[], ProcessorTime | None] = lambda: processor_time(os.getpid()),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._now = now
        self._read_s = now()
        self._reading = read()

    def lap_s(self) -> float:
        """Return the seconds since the last call."""
        before = self._reading
        began_s = self._read_s
        self._read_s = self._now()
        self._reading = self._read()
        if before is None or self._reading is None:
            return self._read_s - began_s
        return self._reading.since(before).own_s
