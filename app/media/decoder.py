"""A handle on one decoder process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO

import psutil

from app.media.containers import MediaError
from app.media.decode_jobs import Job, Result, receive_result, send_job
from engine.ipc import spawn

_COMMAND = (*spawn.PYTHON, "-m", "parley_voice.app.media.decoder_process")
_POLL_S = 0.1
_GRACE_S = 0.3
"""Seconds that a job may still take after its client has left."""
_WALL_FACTOR = 5
"""A job may take this many times its CPU seconds, since the machine may be busy."""
_MEMORY_BYTES = 1_200_000_000
"""Maximum resident memory where the system enforces no limit (macOS)."""
_TOO_COSTLY = "the file takes too much time or memory to decode, or crashes the decoder"


class Decoder:
    """A decoder process. Its methods block, and only one job runs at a time."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            command = [*_COMMAND, str(os.getpid())]
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

    def run(self, job: Job, file: BinaryIO, left: threading.Event) -> Result:
        """Run a job. The process is killed if it exceeds a limit, or soon after ``left`` is set.

        Closes the file as soon as the process has it. Raises MediaError.
        """
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(job, left, done), name="decoder-watch", daemon=True)
        watch.start()
        try:
            send_job(self._connection, job, file)
            return receive_result(self._connection)
        except MediaError:
            raise
        except (EOFError, OSError, MemoryError, ValueError):  # ValueError: the client left, and its file was closed
            self.close()  # a part of the file or of the result may still be in the socket
            raise MediaError(_TOO_COSTLY) from None
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

    def _watch(self, job: Job, left: threading.Event, done: threading.Event) -> None:
        """Kill the process if the job exceeds a limit that the system does not enforce."""
        end_s = time.monotonic() + _WALL_FACTOR * job.cpu_s
        while not done.wait(_POLL_S):
            if left.is_set():
                end_s = min(end_s, time.monotonic() + _GRACE_S)
            if time.monotonic() > end_s or self._is_too_large():
                self._process.kill()
                return

    def _is_too_large(self) -> bool:
        with suppress(psutil.Error):
            return sys.platform != "linux" and psutil.Process(self.pid).memory_info().rss > _MEMORY_BYTES
        return False
