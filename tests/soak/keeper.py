"""An hour of users at a server, written down as it goes; stopped and started again, it goes on in the same folder.

The keeper starts the server and the users, each in a process of its own, looks at both, kills workers, and writes the
report anew each minute. A server that was stopped is gone: the next one begins a new life, with a base of its own.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from app.bench import stoppable
from app.bench.subject import Subject, running
from app.bench.target import BenchError
from engine.ipc import spawn
from tests.soak import journal, report
from tests.soak.server import Server
from tests.soak.verdict import MISSING_MIN, minutes_of_load

CONFIG = Path(__file__).with_name("soak.yaml")
LOOK_S = 5.0
LOOKS_OF_A_MINUTE = 12
KILL_EVERY_S = 240.0
WARM_UP = 0.1
"""The share of the time that users come before the base is looked at, up to WARM_UP_S."""
WARM_UP_S = 60.0
LEAVING_S = 180.0
"""What a user is at may take so long at the end."""

CALLERS = 4
"""One user of so many is a caller: a call takes its client more of the machine than a socket."""

CAPACITY_S = 20.0
CROWDS = (4, 8, 12, 16, 24, 32, 48, 64)
BAD = 0.1
"""A machine carries a crowd if no more of its answers than this run dry or fail."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. ``users`` of None is half of what the machine carries, which is measured first."""

    folder: Path
    minutes: float
    users: int | None = None
    callers: int | None = None
    """How many of the users call; None is a quarter of them."""
    kill_every_s: float = KILL_EVERY_S
    """Seconds between two killed workers; 0 kills none."""
    settled_min: float = 10.0
    niceness: int = 0
    config: str = str(CONFIG)
    """The deployment: a file, or a name in configs/."""
    open: bool = False
    """Whether users ask open questions."""

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"


class Busy(Exception):
    """Somebody else soaks in this folder."""


def soak(plan: Plan) -> bool:
    """Go on until the minutes are full; return whether every bar was held. Raises Busy."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    _prefer(plan.niceness)
    with stoppable(), alone(plan.folder), journal.Journal(plan.journal) as to:
        before = journal.read(plan.journal)
        left_s = 60 * (plan.minutes - minutes_of_load(before))
        try:
            if left_s > 60 * MISSING_MIN:
                life = 1 + max((one.life for one in before), default=-1)
                with running(plan.config, log=plan.folder / "server.log") as subject:
                    _live(plan, subject, life, left_s, to)
        finally:
            good = report.write(plan.folder, journal.read(plan.journal), plan.minutes, plan.settled_min)
    return good


def _prefer(niceness: int) -> None:
    """Run, with all that is started from here, before others: as a process, and as the session that Linux may share
    the processors by."""
    if niceness:
        os.nice(niceness)
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness))


def _live(plan: Plan, subject: Subject, life: int, seconds: float, to: journal.Journal) -> None:
    """One life of the server: warm it up, load it, and see it at rest before and after."""
    count, capacity = _crowd(plan, subject.url)
    warm_up_s = min(WARM_UP_S, WARM_UP * seconds)
    callers = count // CALLERS if plan.callers is None else plan.callers
    crowd = ["--users", str(count), "--callers", str(callers), *(["--open"] if plan.open else [])]
    with users(subject.url, plan.folder / "warm_up.jsonl", life, warm_up_s, *crowd, "--chorus") as process:
        process.wait(warm_up_s + LEAVING_S)
    server = Server(subject, life, to)
    server.rest("base")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    to.add(journal.Started(life, time.monotonic(), date, count, capacity))
    with users(subject.url, plan.journal, life, seconds, *crowd) as process:
        _watch(plan, server, process, seconds)
        process.wait(LEAVING_S)
    server.rest("end")


def _watch(plan: Plan, server: Server, users: subprocess.Popen[bytes], seconds: float) -> None:
    begun_s, looks, kills = time.monotonic(), 0, 0
    crowd = psutil.Process(users.pid)
    while (now_s := time.monotonic()) < begun_s + seconds:
        if users.poll() is not None:
            raise RuntimeError(f"the users' process ended with {users.returncode}: see {plan.folder}/log")
        server.look(crowd, whole=looks % LOOKS_OF_A_MINUTE == 0)
        looks += 1
        if looks % LOOKS_OF_A_MINUTE == 0:
            report.write(plan.folder, journal.read(plan.journal), plan.minutes, plan.settled_min)
        if plan.kill_every_s and now_s - begun_s >= (kills + 0.5) * plan.kill_every_s:
            server.kill()
            kills += 1
        time.sleep(max(0.0, now_s + LOOK_S - time.monotonic()))


def _crowd(plan: Plan, url: str) -> tuple[int, int | None]:
    """How many users come, and of how many that is half: as it was told, or found by a life before, or measured."""
    if plan.users is not None:
        return plan.users, None
    for one in journal.read(plan.journal):
        if isinstance(one, journal.Started):
            return one.users, one.capacity
    found = capacity(url, plan.folder / "capacity.jsonl")
    if not found:
        raise BenchError(f"this machine carries not even {CROWDS[0]} users; when it is idle, or with --users, it may")
    return found // 2, found


def capacity(url: str, path: Path) -> int:
    """Let ever more users come, and return the most of whom the answers were in time."""
    carried = 0
    for life, crowd in enumerate(CROWDS):
        words = ["--users", str(crowd), "--callers", str(crowd // CALLERS)]
        with users(url, path, life, CAPACITY_S, *words) as process:
            process.wait(CAPACITY_S + LEAVING_S)
        answers = [one for one in journal.read(path) if isinstance(one, journal.Answer) and one.life == life]
        bad = sum(bool(one.gaps) or one.outcome != "completed" for one in answers)
        print(f"{crowd} users: {bad} of {len(answers)} answers ran dry or failed", flush=True)
        if bad > BAD * len(answers):
            break
        carried = crowd
    return carried


@contextmanager
def users(url: str, path: Path, life: int, seconds: float, *more: str) -> Generator[subprocess.Popen[bytes]]:
    """The users' process, which ends with the block at the latest."""
    command = [sys.executable, *spawn.PYTHON[1:], "-m", "tests.soak", "users", url, str(path)]
    command += ["--life", str(life), "--seconds", str(seconds), *more]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": "."})
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Hold the folder; its file ``pid`` says who does. Raises Busy."""
    with (folder / "pid").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"a soak is running in {folder}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def running_in(folder: Path) -> int | None:
    """Return the process that soaks in a folder; None if there is none."""
    try:
        with alone(folder):
            return None
    except Busy:
        return int((folder / "pid").read_text())
    except FileNotFoundError:
        return None
