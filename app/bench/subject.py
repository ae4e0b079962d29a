"""The server that is measured: a process of its own, started as a user would start it. Unix and Windows alike.

Knows no protocol but `/health`.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.request import urlopen

import psutil

from app.bench.target import BenchError

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
def running(config: str | None, certificate: Path | None = None) -> Generator[Subject]:
    """A server for a deployment while the block lasts, behind TLS if a file with a certificate and its key is given.

    Raises BenchError if it does not turn green.
    """
    port = _free_port()
    command = [sys.executable, "-m", "app", "serve", *([config] if config else []), "--port", str(port)]
    if certificate is not None:
        command += ["--https", str(certificate)]
    address = f"{'s' if certificate else ''}://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as log:
        begun_s = time.monotonic()
        process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, text=True)
        try:
            _wait_until_green(process, Probe(f"http{address}/health", certificate), begun_s, log)
            yield Subject(f"ws{address}", time.monotonic() - begun_s, process.pid)
        finally:
            _stop(process)


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks a server whether it is green; behind TLS, one that shows this certificate."""

    url: str
    certificate: Path | None

    def green(self) -> bool:
        context = None if self.certificate is None else ssl.create_default_context(cafile=self.certificate)
        try:
            with urlopen(self.url, timeout=5, context=context) as health:
                return health.status == 200
        except OSError:
            return False


def _wait_until_green(process: subprocess.Popen[str], probe: Probe, begun_s: float, log: IO[str]) -> None:
    while time.monotonic() - begun_s < START_S:
        if process.poll() is not None:
            log.seek(0)
            raise BenchError(f"the server ended before it was green: {(log.read().splitlines() or ['?'])[-1]}")
        if probe.green():
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
