"""Ends the processes that a stage's library starts together with their worker, however that ends.

Such libraries end their own processes when they are closed. But a worker that is killed cannot close them, and the
remaining processes would keep holding GPU memory. So the worker leads a process group, and a small watcher process
kills the rest of the group after the worker has ended. The watcher needs a Linux system call; on other systems,
``lead`` does nothing.
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
    """Make every process that this one starts from now on end with it. Ctrl-C in the terminal reaches none of them."""
    if not hasattr(os, "pidfd_open"):
        return
    with suppress(PermissionError):  # a session leader already leads a group
        os.setpgid(0, 0)
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCHMAN, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
