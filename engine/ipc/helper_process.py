"""The main loop of a helper process: it works on foreign data, one job after another, within limits.

``Helper`` starts it, with a socket as its standard input and its own process id as the only argument. The system ends
it at a limit, and together with its parent.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from engine.ipc import process_limits, spawn


def serve(memory_bytes: int, serve_one: Callable[[socket.socket], bool]) -> None:
    """Serve jobs until the parent closes the socket.

    Args:
        memory_bytes: Address space that the jobs may add. Where the system ignores it, the parent watches the process.
        serve_one: Receives a job, limits its CPU time and sends its result. Returns False if the socket was closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent ends this process
    if end := spawn.end_with_parent(signal.SIGKILL):  # elsewhere, the socket's end and the CPU limit end it
        end()
    if os.getppid() != int(sys.argv[1]):
        return  # the parent ended before
    process_limits.limit_memory(memory_bytes)
    with socket.socket(fileno=os.dup(0)) as connection, suppress(ConnectionError):
        while serve_one(connection):
            pass
