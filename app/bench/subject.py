"""The server that is measured: a process of its own, started as a user would start it. Unix and Windows alike.

Knows no protocol but `/health`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO
from urllib.request import urlopen

import psutil

from app.bench.client import BenchError

START_S = 120.0
STOP_S = 15.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Subject:
    """A green server."""

    url: str
    green_s: float
    """From the start of the process until it was green."""
    pid: int

    def rss_gb(self) -> float:
        """Resident memory of all its processes; what they share counts in each."""
        root = psutil.Process(self.pid)
        sizes = 0
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                sizes += process.memory_info().rss
        return sizes / 1e9


@contextmanager
def running(config: str | None) -> Generator[Subject]:
    """A server for a deployment while the block lasts. Raises BenchError if it does not turn green."""
    port = _free_port()
    command = [sys.executable, "-m", "app", "serve", *([config] if config else []), "--port", str(port)]
    with tempfile.TemporaryFile("w+") as log:
        begun_s = time.monotonic()
        process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, text=True)
        try:
            _wait_until_green(process, port, begun_s, log)
            yield Subject(f"ws://127.0.0.1:{port}", time.monotonic() - begun_s, process.pid)
        finally:
            _stop(process)


def _wait_until_green(process: subprocess.Popen[str], port: int, begun_s: float, log: IO[str]) -> None:
    while time.monotonic() - begun_s < START_S:
        if process.poll() is not None:
            log.seek(0)
            raise BenchError(f"the server ended before it was green: {(log.read().splitlines() or ['?'])[-1]}")
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as health:
            if health.status == 200:
                return
        time.sleep(POLL_S)
    raise BenchError(f"the server was not green after {START_S:g} s")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
