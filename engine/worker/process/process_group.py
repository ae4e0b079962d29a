"""The processes that a stage's library starts: they end with their worker, however that ends.

A library that computes in processes of its own ends them when it is asked to. A worker that is killed asks nobody, and
the processes it leaves would hold a GPU's memory until somebody finds them. So the worker leads a group of processes,
and a watchman, a small process, ends the rest of the group after it. Only Linux has the call with which the watchman
waits; elsewhere nothing is done.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

_WATCHMAN = """
import os, select, signal, sys
leader = int(sys.argv[1])
try:
    select.select([os.pidfd_open(leader)], [], [])
except ProcessLookupError:
    pass  # it is gone already
def ended(pid):
    try:
        # multiprocessing's tracker ends by itself, and removes the shared memory that the others leave
        if os.getpgid(pid) != leader or b"resource_tracker" in open(f"/proc/{pid}/cmdline", "rb").read():
            return False
        os.kill(pid, signal.SIGKILL)
        return True
    except (ProcessLookupError, FileNotFoundError):
        return False
while any([ended(int(pid)) for pid in os.listdir("/proc") if pid.isdigit()]):
    pass  # one may have started another meanwhile
"""


def lead() -> None:
    """Have every process that this one starts from now on end with it. The terminal's Ctrl-C reaches none of them."""
    if not hasattr(os, "pidfd_open"):
        return
    with suppress(PermissionError):  # the leader of a session leads a group already
        os.setpgid(0, 0)
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCHMAN, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
