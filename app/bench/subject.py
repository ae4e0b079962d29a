"""The measured server: a separate process, started as a user would start it, on Unix and Windows.

The only request it sends is `/health`.
"""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.request import urlopen

import psutil
import yaml

from app.bench.target import BenchError, Target
from app.commands.deployment import DEFAULT, path_of
from engine.core import Pcm
from engine.ipc import spawn

START_S = 120.0
STOP_S = 15.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Subject:
    """A server that is ready."""

    url: str
    green_s: float
    """Seconds from the start of the process until it was ready."""
    pid: int

    def rss_gb(self) -> float:
        """Return the resident memory of all its processes. Shared memory counts in each."""
        root = psutil.Process(self.pid)
        sizes = 0
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                sizes += process.memory_info().rss
        return sizes / 1e9


Changes = Mapping[str, Any]
"""Changes to a configuration, such as ``{"server.turns.guess_ms": 0}``. A path below ``workers`` applies to each
worker.
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A deployment for which a benchmark starts a server.

    ``weights`` replaces the configured ones; ``speech`` is what the microphones send (see Target).
    """

    config: str | None = None
    weights: str | None = None
    speech: Pcm | None = None

    @contextmanager
    def running(self, changes: Changes | None = None) -> Generator[Subject]:
        """Run a server for the deployment while the block lasts. Raises BenchError if it does not become ready."""
        named = {} if self.weights is None else {"weights": self.weights}
        with running(self.config, changes={**named, **(changes or {})}) as server:
            yield server

    def target(self, server: Subject) -> Target:
        return Target(server.url, speech=self.speech)


@contextmanager
def running(
    config: str | None,
    certificate: Path | None = None,
    changes: Changes | None = None,
    log: Path | None = None,
    program: Sequence[str] = ("-m", "parley_voice.app"),
) -> Generator[Subject]:
    """Run a server for a deployment while the block lasts, with TLS if ``certificate`` is set.

    Its output is appended to ``log``, if set. ``program`` is what Python runs. Raises BenchError if it does not become
    ready.
    """
    with ExitStack() as stack:
        config = config or DEFAULT
        if changes:
            config = str(stack.enter_context(_changed(path_of(config), changes)))
        if log is None:
            words = stack.enter_context(tempfile.TemporaryFile("w+"))
        else:
            words = stack.enter_context(log.open("a+", encoding="utf-8"))
        yield stack.enter_context(_running(config, certificate, words, program))


@contextmanager
def _running(config: str, certificate: Path | None, log: IO[str], program: Sequence[str]) -> Generator[Subject]:
    port = _free_port()
    command = [*spawn.PYTHON, *program, "serve", config, "--port", str(port)]
    if certificate is not None:
        command += ["--https", str(certificate)]
    address = f"{'s' if certificate else ''}://127.0.0.1:{port}"
    begun_s = time.monotonic()
    process = subprocess.Popen(
        command, stderr=log, stdout=subprocess.DEVNULL, text=True, preexec_fn=spawn.end_with_parent(signal.SIGTERM)
    )
    try:
        _wait_until_green(process, Probe(f"http{address}/health", certificate), begun_s, log)
        yield Subject(f"ws{address}", time.monotonic() - begun_s, process.pid)
    finally:
        _stop(process)


@contextmanager
def _changed(path: Path, changes: Changes) -> Generator[Path]:
    """Write a changed configuration to a temporary file while the block lasts."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    for where, value in changes.items():
        _say(tree, where.split("."), value)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(yaml.safe_dump(tree), encoding="utf-8")
        yield copy


def _say(tree: Any, where: Sequence[str], value: Any) -> None:
    if isinstance(tree, list):
        for one in cast("list[Any]", tree):
            _say(one, where, value)
    elif len(where) == 1:
        tree[where[0]] = value
    else:
        _say(tree.setdefault(where[0], {}), where[1:], value)


@dataclass(frozen=True, slots=True)
class Probe:
    """Checks whether a server is ready. With TLS, it must have this certificate."""

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
            raise BenchError(
                f"the server exited before it was ready: {(log.read().splitlines() or ['?'])[-1]}. "
                "Run `parley serve` to see its whole log"
            )
        if probe.green():
            return
        time.sleep(POLL_S)
    raise BenchError(f"the server was not ready after {START_S:g} s. Run `parley serve` to see why")


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
