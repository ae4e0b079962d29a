"""Runs the containers of deploy/compose.yaml with podman, each in the foreground until its block ends."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from scripts.containers import composed
from scripts.containers.composed import DEPLOY
from scripts.containers.machine import Failed, Machine, call
from scripts.containers.network import INSIDE, NAME

READY_S = 120.0
STOP_S = composed.stop_s("parley")
"""A container that takes longer to stop is killed and exits with 137."""

PROGRAMS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "parley": (10001, (), ()),
    "caddy": (
        0,
        ("caddy", "run", "--config", "/etc/caddy/Caddyfile"),
        ("--env=XDG_DATA_HOME=/data", "--env=XDG_CONFIG_HOME=/config"),
    ),
    "coturn": (65534, ("turnserver",), ("--tmpfs=/var/lib/turn",)),
    "prometheus": (65534, ("prometheus", "--web.listen-address=127.0.0.1:9090"), ()),
}
"""Service -> its user, the words before those of compose.yaml in its command, and podman options for Debian's package.
Grafana is missing: Debian has no package of it.
"""

LOCKED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--tmpfs=/tmp")
"""The options that compose.yaml sets for every service, for containers that are not in it."""

REMOVED_S = 120.0
"""Seconds to wait: podman removes its copy of the image before it exits, which is slow on a slow disk."""


@dataclass(frozen=True)
class Container:
    """A container to start; ``options`` are podman's."""

    name: str
    image: str
    command: Sequence[str]
    options: Sequence[str] = ()


def all_of(machine: Machine, local: Path, data: Path) -> Iterator[Container]:
    """Yield the services whose configuration is in ``local`` and whose volumes are in ``data``."""
    for name, (user, program, more) in PROGRAMS.items():
        composed.volumes(name, data, user)
        options = [*composed.options(name, local, data, {"PARLEY_NAME": NAME}, machine.counts_memory), *more]
        command = [*program, *composed.command(name)]
        yield (
            parley(command, options)
            if name == "parley"
            else service(name, command, [f"--user={user}:{user}", *options])
        )


def parley(command: Sequence[str], options: Sequence[str] = (), name: str = "parley") -> Container:
    """Return a container of Parley's image that runs the given command."""
    return Container(name, "parley:cpu", command, options)


def service(name: str, command: Sequence[str], options: Sequence[str]) -> Container:
    """Return a container that runs a program of Debian's packages."""
    return Container(name, "localhost/parley-services:bookworm", command, options)


class Running:
    """A running container and its output."""

    def __init__(self, machine: Machine, container: Container, log: Path, wrapper: Sequence[str] = ()) -> None:
        self.machine = machine
        self.name = container.name
        self._log = log
        options = [*machine.limits, "--network=host", f"--stop-timeout={STOP_S}", f"--add-host=parley:{INSIDE}"]
        run = ["run", "--rm", f"--name={container.name}", *options, *container.options, container.image]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*wrapper, *machine.podman, *run, *container.command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def healthy(self) -> bool:
        """Whether the image's own health check passes."""
        check = [*self.machine.podman, "healthcheck", "run", self.name]
        return subprocess.run(check, capture_output=True, timeout=60).returncode == 0

    def stop(self) -> int:
        """Stop the container as an operator does, and return its exit status; later calls return the same."""
        if self.process.poll() is None:
            subprocess.run([*self.machine.podman, "stop", self.name], capture_output=True, timeout=STOP_S + 60)
        try:
            return self.process.wait(REMOVED_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def ended(self, timeout_s: float) -> str:
        """Return the output once the container has exited without being stopped. Raises Failed."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} is still running; its output:\n{self.said}") from None
        return self.said


@contextmanager
def running(machine: Machine, container: Container, logs: Path, wrapper: Sequence[str] = ()) -> Generator[Running]:
    """Run a container while the block lasts."""
    logs.mkdir(exist_ok=True)
    one = Running(machine, container, logs / f"{container.name}.log", wrapper)
    try:
        yield one
    finally:
        one.stop()


@contextmanager
def deployed(machine: Machine, local: Path, data: Path) -> Generator[dict[str, Running]]:
    """Run all services while the block lasts; yields once Parley and Prometheus are ready. Raises Failed."""
    with ExitStack() as stack:
        found = {
            one.name: stack.enter_context(running(machine, one, data / "logs")) for one in all_of(machine, local, data)
        }
        wait_ready(found["parley"], "http://127.0.0.1:8000/health")
        wait_ready(found["prometheus"], "http://127.0.0.1:9090/-/ready")
        yield found


def wait_ready(one: Running, url: str) -> None:
    """Wait until the URL answers. Raises Failed if the container exits first or takes too long."""
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s and one.process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.3)
    raise Failed(f"{one.name} did not become ready; its output:\n{one.said}")


def configure(local: Path, address: str) -> None:
    """Write a configuration with new secrets, as an operator does."""
    call(["sh", DEPLOY / "configure.sh", NAME, address, local])
