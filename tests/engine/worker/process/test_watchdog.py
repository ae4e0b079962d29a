"""The alarm of a process whose native call never returns: when it is set, and what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from engine.ipc import messages
from engine.worker.process import watchdog
from engine.worker.process.watchdog import GRACE_S, Watchdog


@pytest.fixture
def alarms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were set, in seconds, in place of setting any."""
    found: list[float] = []
    monkeypatch.setattr(watchdog.faulthandler, "register", lambda signum, log, **_: os.close(log))
    monkeypatch.setattr(watchdog.signal, "setitimer", lambda which, left_s: found.append(left_s))
    return found


def test_an_alarm_is_behind_the_last_deadline_and_gone_with_the_last_step(alarms: list[float]) -> None:
    now_s = 100.0
    watch = Watchdog(lambda: now_s)
    watch.note(messages.Blocking("ears", 5.0))
    now_s = 102.0
    watch.note(messages.Blocking("voice", 1.0))
    watch.note(messages.Blocking("ears", 0.0))
    now_s = 110.0
    watch.note(messages.Blocking("ears", 2.0))
    watch.note(messages.Blocking("ears", 0.0))
    watch.note(messages.Blocking("voice", 0.0))
    assert alarms == [5 + GRACE_S, 3 + GRACE_S, 1 + GRACE_S, 2 + GRACE_S, GRACE_S, 0]


CODE = """
import ctypes
from engine.ipc import messages
from engine.worker.libraries.stderr_filter import without_lines_of
from engine.worker.process import watchdog

watchdog.GRACE_S = 0.05
watch, library = watchdog.Watchdog(), ctypes.PyDLL(None)

def never_returns():
    watch.note(messages.Blocking('voice', 0.05))
    library.pause()

def quietly():
    with without_lines_of(b'/csrc/'):
        never_returns()

"""


@pytest.mark.parametrize("called", ["never_returns", "quietly"])
def test_a_call_that_holds_pythons_lock_is_ended_and_the_log_tells_where_it_was(called: str) -> None:
    code = f"{CODE}{called}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGALRM
    assert "in never_returns" in done.stderr


def test_it_is_ended_where_there_is_no_log_too() -> None:
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, f"{CODE}never_returns()"]
    done = subprocess.run(command, timeout=60, check=False)
    assert done.returncode == -signal.SIGALRM
