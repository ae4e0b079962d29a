"""Fail a test that leaves something behind: tasks, threads, processes, listening sockets, shared memory, connections.

A pytest plugin of autouse fixtures; each compares the state before a test with the state after all its fixtures are
gone, and gives what is on its way out a moment. Fixtures of a wider scope come first, so what they hold counts as
having been there. And a test that measures time needs a machine on which nothing else goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import re
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from pathlib import Path

import network
import psutil
import pytest

GRACE_S = 10.0  # a worker process gets 2 s from Stop to SIGKILL; on an idle machine nothing needs more than 3
LOOK_S = 0.2
LOOKS_FOR_IDLE = 15
"""What an earlier test or a fixture has just started, as a browser, is busy for a second or two."""
BUSY = 0.3
"""Share of all processors that others may take beside a test that measures time."""
SHARED_MEMORY = Path("/dev/shm")
NOT_OURS = ("sem.", "jack_db-", "libpod_", "faketime_")
"""Semaphores are unlinked by their makers at once; JACK's library makes a folder for good when PortAudio first asks it
for a player, and podman a file at its first start."""
number = itertools.count()
"""Of the test, for a file of its own."""


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Generator[None]:
    """The gate around every test; asynchronous ones must also end their tasks."""
    before = {name: look() for name, look in LOOKS.items()}
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_leaves_no_tasks")
    yield
    deadline_s = time.monotonic() + GRACE_S
    while left := _left(before):
        if time.monotonic() > deadline_s:
            _kill(left.get("processes", set()))
            pytest.fail("; ".join(f"left behind {name}: {', '.join(sorted(found))}" for name, found in left.items()))
        time.sleep(0.01)


@pytest.fixture
async def _leaves_no_tasks() -> AsyncGenerator[None]:
    before = asyncio.all_tasks()
    yield
    ours = {asyncio.current_task(), *before}
    deadline_s = time.monotonic() + GRACE_S
    while left := asyncio.all_tasks() - ours:
        if time.monotonic() > deadline_s:
            pytest.fail(f"left behind tasks: {', '.join(sorted(task.get_name() for task in left))}")
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def measures_alone(request: pytest.FixtureRequest) -> None:
    """A test that measures time is skipped on a busy machine: it would measure the others."""
    if request.node.get_closest_marker("bench") and not _idle():
        pytest.skip("it measures time, and others keep the processors busy")


def _idle() -> bool:
    return any(psutil.cpu_percent(LOOK_S) <= 100 * BUSY for _ in range(LOOKS_FOR_IDLE))


@pytest.fixture(autouse=True)
def stays_on_this_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The gate for connections: refused where they are tried, and the test fails even if it swallows the refusal."""
    log = tmp_path_factory.getbasetemp() / f"network-{next(number)}"
    monkeypatch.setenv(network.LOG, str(log))
    network.tried.clear()
    yield
    found = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    if found:
        pytest.fail(f"tried to leave this machine: {'; '.join(sorted(set(found)))}")


def _kill(processes: set[str]) -> None:
    """End what a test left, that the tests after it do not fail with it."""
    for one in processes:
        with suppress(psutil.Error):
            psutil.Process(int(one.split()[0])).kill()


def _left(before: dict[str, set[str]]) -> dict[str, set[str]]:
    left = {name: look() - before[name] for name, look in LOOKS.items()}
    left["processes"] = {one for one in left["processes"] if not _descends(one, before["processes"])}
    return {name: found for name, found in left.items() if found}


def _descends(process: str, before: set[str]) -> bool:
    """Whether one that was there before started it: a browser that tests share comes and goes with its own helpers."""
    known = {int(name.split()[0]) for name in before}
    try:
        return any(parent.pid in known for parent in psutil.Process(int(process.split()[0])).parents())
    except psutil.NoSuchProcess:
        return False


def _threads() -> set[str]:
    """Threads but those of an event loop's executor and of a server's decoding: shared by tests, they start when needed
    and end with their loop or server."""
    names = {f"{thread.name} ({thread.ident})" for thread in threading.enumerate()}
    return {name for name in names if not name.startswith(("asyncio_", "decoding_"))}


def _processes() -> set[str]:
    with suppress(AttributeError):  # macOS has no waitid
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # so the table of all processes need not be read
            return set()
    return {f"{pid} {name}" for pid in _descendants() if (name := _command(pid)) != ""}


def _descendants() -> set[int]:
    """All that came of this process. The kernel's lists tell it (psutil would read the table of all processes); while
    one of them ends it may leave another out, so they are read until they say the same twice."""
    if not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists():
        return {child.pid for child in psutil.Process().children(recursive=True)}
    found, again = _listed(os.getpid()), _listed(os.getpid())
    while found != again:
        found, again = again, _listed(os.getpid())
    return found


def _listed(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # it ends meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found |= {int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()}
    return found.union(*map(_listed, found))


def _command(pid: int) -> str:
    """Its command line; empty for what is gone by now, and for multiprocessing's own helper, which stays for ever."""
    try:
        process = psutil.Process(pid)
        line = " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return ""
    return "" if "multiprocessing.resource_tracker" in line else line[:120]


def _listening() -> set[str]:
    """Addresses at which somebody could reach this process: of sockets that accept, and of datagrams'."""
    return {address for descriptor in os.listdir("/dev/fd") if (address := _address(int(descriptor)))}


def _address(descriptor: int) -> str:
    try:
        looked_at = socket.socket(fileno=descriptor)
    except OSError:  # no socket, or gone
        return ""
    try:
        inet = looked_at.family in (socket.AF_INET, socket.AF_INET6)
        datagrams = looked_at.type == socket.SOCK_DGRAM
        if not inet or not (datagrams or looked_at.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)):
            return ""
        host, port = looked_at.getsockname()[:2]
        return f"{host}:{port}"
    except OSError:
        return ""
    finally:
        looked_at.detach()


def _shared_memory() -> set[str]:
    """Segments that one of our processes holds or nobody does; a neighbour's test may have its own."""
    names = segments()
    return names - _held_elsewhere() if names else names


def segments() -> set[str]:
    """The names in shared memory of the whole machine, less those of system libraries."""
    if not SHARED_MEMORY.is_dir():
        return set()
    return {name for name in os.listdir(SHARED_MEMORY) if not name.startswith(NOT_OURS)}


def _held_elsewhere() -> set[str]:
    """The segments of processes that are not ours, read in one pass: there may be many processes."""
    family, held = {os.getpid(), *_descendants()}, set[str]()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        if int(maps.parent.name) not in family:
            with suppress(OSError):
                held.update(re.findall(rf"{SHARED_MEMORY}/(\S+)", maps.read_text()))
    return held


LOOKS: dict[str, Callable[[], set[str]]] = {
    "threads": _threads,
    "processes": _processes,
    "listening sockets": _listening,
    "shared memory": _shared_memory,
}
