"""The measured server ends with the process that started it."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

PARENT = """
import signal, subprocess, sys, time
from engine.ipc.spawn import end_with_parent
sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleeping, preexec_fn=end_with_parent(signal.SIGTERM))
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do this")
def test_a_killed_run_leaves_no_server_behind() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
