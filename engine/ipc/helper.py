"""A handle on a helper process, which works on foreign data within limits of time and memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from engine.ipc import spawn

_POLL_S = 0.1
_GRACE_S = 0.3
"""Seconds that a job may still take after its client has left."""

T = TypeVar("T")


class Helper:
    """A process of a module whose main function is ``helper_process.serve``. Its methods block.

    Only one job runs at a time. ``memory_bytes`` is the maximum resident memory where the system enforces no limit
    (macOS).
    """

    def __init__(self, module: str, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._connection, theirs = socket.socketpair()
        with theirs:
            command = [*spawn.PYTHON, "-m", module, str(os.getpid())]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=spawn.environment()
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take another job."""
        return self._process.poll() is None

    def exchange(self, talk: Callable[[socket.socket], T], limit_s: float, left: threading.Event) -> T:
        """Return the result of ``talk``, which sends a job and receives its result.

        The process is killed after ``limit_s`` seconds, or soon after ``left`` is set. The process itself limits its
        CPU time; the machine may be busy. Raises EOFError if the process ended, or if ``talk`` did not read the whole
        result.
        """
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(limit_s, left, done), name="helper-watch", daemon=True)
        watch.start()
        try:
            return talk(self._connection)
        except (EOFError, OSError, MemoryError):  # a part of the result may still be in the socket
            self.close()
            raise EOFError from None
        finally:
            done.set()
            watch.join()

    def kill(self) -> None:
        """Kill the process, which ends a running job."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and free its socket. Not while a job runs. May be called twice."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _watch(self, limit_s: float, left: threading.Event, done: threading.Event) -> None:
        """Kill the process if the job exceeds a limit that the system does not enforce."""
        end_s = time.monotonic() + limit_s
        while not done.wait(_POLL_S):
            if left.is_set():
                end_s = min(end_s, time.monotonic() + _GRACE_S)
            if time.monotonic() > end_s or self._is_too_large():
                self._process.kill()
                return

    def _is_too_large(self) -> bool:
        if sys.platform == "linux":
            return False
        import psutil  # the environment of a library's own may lack it

        with suppress(psutil.Error):
            return psutil.Process(self.pid).memory_info().rss > self._memory_bytes
        return False
