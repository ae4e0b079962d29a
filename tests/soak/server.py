"""The server of a soak, as its keeper sees it: looked at every few seconds, and one of its workers killed now and then.

Of each pair of workers the second may be killed; the first lives as long as the server, so that its memory is one
series.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil

from app.bench.subject import Subject
from tests.soak import journal, memory
from tests.soak.flat import metrics, sample

BACK_S = 60.0
"""A worker that is not back by then stays lost, as the report will say."""
POLL_S = 0.1
LEAD_S = 1.5
"""The server sends as much ahead of a listener: what was not made in time may be missed so much later."""


class Server:
    """One life of a server. Workers are named by their place: a new worker takes the name of the one that was
    killed."""

    def __init__(self, subject: Subject, life: int, to: journal.Journal) -> None:
        self.subject, self._life, self._to = subject, life, to
        self._root = psutil.Process(subject.pid)
        children = sorted(self._root.children(recursive=True), key=lambda one: one.pid)
        self._workers = {f"worker{place}": one for place, one in enumerate(children)}
        self._kills = 0
        self._cpu_s: dict[int, float] = {}
        self._looked_s, self._busy_s = time.monotonic(), _busy_s()
        self._cores({"server": [self._root], "workers": children})

    def kill(self) -> None:
        """Kill -9 one of those that may be killed; wait until another has its place and is warm, and write it down."""
        self._adopt()
        places = list(self._workers)[1::2]
        place = places[self._kills % len(places)]
        self._kills += 1
        before, at_s = self._incarnations(), time.monotonic()
        with suppress(ProcessLookupError):  # it is gone already, and none has come for it yet
            os.kill(self._workers[place].pid, signal.SIGKILL)
        while self._incarnations() <= before and time.monotonic() < at_s + BACK_S:
            time.sleep(POLL_S)
        back_s = time.monotonic()
        note = f"{place}, back after {back_s - at_s:.1f} s"
        self._to.add(journal.Fault(self._life, at_s, "kill", back_s + LEAD_S, note=note))
        self._replace(place)

    def look(self, users: psutil.Process, whole: bool) -> None:
        """Write down what the server has and takes; ``whole``: what takes longer to find out, too."""
        self._adopt()
        page = metrics(self.subject)
        processes = {"server": self._root, **self._workers}
        own, rss, pss, files, threads = {}, {}, {}, 0, 0
        for name, process in processes.items():
            with suppress(psutil.Error, OSError):
                own[name] = round(memory.own_mb(process.pid), 3)
                rss[name] = round(process.memory_info().rss / 1e6, 3)
                if whole:
                    pss[name] = round(memory.pss_mb(process.pid), 3)
                files, threads = files + process.num_fds(), threads + process.num_threads()
        prefix_mb = sum(value for name, value in page.items() if name.startswith("parley_prefix_bytes")) / 1e6
        cores = self._cores({"server": [self._root], "workers": [*self._workers.values()], "users": [users]})
        tasks, sessions = int(page["parley_tasks"]), int(page["parley_sessions"])
        now_s = time.monotonic()
        self._to.add(journal.Look(self._life, now_s, own, rss, pss, tasks, files, threads, sessions, prefix_mb, cores))

    def rest(self, when: str) -> None:
        """Wait until everyone has left, and write down what is held then."""
        one = sample(self.subject)
        fields = one.memory_mb, one.files, one.threads, one.tasks, one.sessions, one.leased
        self._to.add(journal.Rest(self._life, time.monotonic(), when, *fields))

    def _adopt(self) -> None:
        """Give the places of workers that are gone, though nobody killed them, to those that have come for them."""
        for place, worker in self._workers.items():
            if not worker.is_running() and self._replace(place):
                self._to.add(journal.Lost(self._life, time.monotonic(), place))

    def _replace(self, place: str) -> bool:
        """Whether there is a new worker for a place: it has the place's name from now on."""
        known = {one.pid for one in self._workers.values()}
        new = [one for one in self._root.children(recursive=True) if one.pid not in known and one.is_running()]
        if new:
            self._workers[place] = new[0]
        return bool(new)

    def _incarnations(self) -> float:
        """Count the workers that places have had: fewer while one is lost, and more when another is warm."""
        page = metrics(self.subject)
        return sum(value for name, value in page.items() if name.startswith("parley_replica_incarnation"))

    def _cores(self, groups: dict[str, list[psutil.Process]]) -> dict[str, float]:
        """Return the cores that each group of processes kept busy since the last time, and all else."""
        now_s, busy_s = time.monotonic(), _busy_s()
        took_s = max(now_s - self._looked_s, 1e-9)
        found = {name: sum(map(self._since, group)) / took_s for name, group in groups.items()}
        found["others"] = max(0.0, (busy_s - self._busy_s) / took_s - sum(found.values()))
        self._looked_s, self._busy_s = now_s, busy_s
        return {name: round(cores, 3) for name, cores in found.items()}

    def _since(self, process: psutil.Process) -> float:
        """The processor's seconds of a process since it was asked last; of a new one, since its start."""
        try:
            times = process.cpu_times()
        except psutil.Error:
            return 0.0
        now_s = times.user + times.system
        since_s = now_s - self._cpu_s.get(process.pid, 0.0)
        self._cpu_s[process.pid] = now_s
        return since_s


def _busy_s() -> float:
    """The processor's seconds that the machine has given to anybody, what its host took from it included."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
