"""What a library starts in a worker ends with it, also where the worker is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

END_S, STAYS_S = 20.0, 0.5
WORKER = """
import signal, subprocess, sys
from multiprocessing.shared_memory import SharedMemory
from engine.worker.process import process_group
if sys.argv[1] == "leads":
    process_group.lead()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdout=subprocess.DEVNULL)
memory = SharedMemory(create=True, size=10)
print(child.pid, memory.name, flush=True)
signal.pause()
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has what it waits with")


@contextmanager
def killed(how: str) -> Generator[tuple[int, Path]]:
    """A worker that is killed: a descriptor of the process that it had started, and its shared memory."""
    with subprocess.Popen([sys.executable, "-c", WORKER, how], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        child, memory = worker.stdout.readline().split()
        descriptor = os.pidfd_open(int(child))
        worker.kill()
    try:
        yield descriptor, Path("/dev/shm") / memory
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)


def ended(descriptor: int, within_s: float) -> bool:
    return bool(select.select([descriptor], [], [], within_s)[0])


def test_a_process_that_a_killed_worker_had_started_is_killed_as_well() -> None:
    with killed("leads") as (descriptor, memory):
        assert ended(descriptor, END_S)
        deadline_s = time.monotonic() + END_S
        while memory.exists():  # multiprocessing's own tracker is left to remove it
            assert time.monotonic() < deadline_s


def test_a_process_that_nobody_watches_over_stays() -> None:
    """What the test above is worth."""
    with killed("alone") as (descriptor, _):
        assert not ended(descriptor, STAYS_S)
