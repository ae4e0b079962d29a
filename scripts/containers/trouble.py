"""Runs Parley on machines that lack something; it must exit with one sentence that says what to do, or work all the
same.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts.containers import checks, services
from scripts.containers.machine import Failed, Machine, call
from scripts.containers.network import HOUSE
from scripts.containers.services import LOCKED, Container, parley, running, wait_ready

MEMORY = Path("/sys/fs/cgroup/memory")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ENDS_S = 90.0
SERVE = ("serve", "nano", "--host", "0.0.0.0")
WITH_CERTIFICATE = ("serve", "nano", "--https", "auto")


def all_of(machine: Machine, folder: Path) -> Iterator[str]:
    """Yield a line for each case. Raises Failed."""
    logs = folder / "trouble"
    state = "--mount=type=tmpfs,destination=/var/lib/parley,ro"
    yield refuses(machine, logs, "a read-only disk", [state], "cannot store a certificate")
    with full_disk(folder) as disk:
        state = f"--volume={disk}:/var/lib/parley"
        yield refuses(machine, logs, "a full disk", [state], "cannot store a certificate")
    shm = "--mount=type=tmpfs,destination=/dev/shm,tmpfs-size=1m,ro"
    yield serves(machine, logs, "a /dev/shm that nobody can write to", [shm])
    yield serves(machine, logs, "256 open files", ["--ulimit=nofile=256:256"])
    with half_a_gigabyte(machine) as (options, wrapper):
        yield serves(machine, logs, "512 MB of memory", options, wrapper)
    yield wrong_turn_secret(machine, folder)
    only_ipv6()
    yield serves(machine, logs, "IPv6 alone", [], command=("serve", "nano", "--host", "::"), host="[::1]")


def refuses(machine: Machine, logs: Path, what: str, options: Sequence[str], sentence: str) -> str:
    """Return the sentence with which the server exits. Raises Failed if there is not exactly one."""
    with running(machine, named(WITH_CERTIFICATE, options), logs) as one:
        said = one.ended(ENDS_S)
    found = [line for line in said.splitlines() if sentence in line]
    if len(found) != 1 or "Traceback" in said:
        raise Failed(f"{what}: expected one sentence, got:\n{said}")
    return f"{what}: {found[0]}"


def serves(
    machine: Machine,
    logs: Path,
    what: str,
    options: Sequence[str],
    wrapper: Sequence[str] = (),
    command: Sequence[str] = SERVE,
    host: str = "127.0.0.1",
) -> str:
    """Check that Parley becomes ready and speaks. Raises Failed if not."""
    with running(machine, named(command, options), logs, wrapper) as one:
        wait_ready(one, f"http://{host}:8000/health")
        url = f"http://{host}:8000"
        say = ["parley", "say", "Good morning.", "--url", url, "-o", "/tmp/said.wav"]
        done = subprocess.run([*machine.podman, "exec", one.name, *say], capture_output=True, text=True, timeout=ENDS_S)
        if done.returncode != 0 or "Traceback" in one.said:
            raise Failed(f"{what}: {done.stdout}{done.stderr}\nthe server's output:\n{one.said}")
    return f"{what}: speaks"


def wrong_turn_secret(machine: Machine, folder: Path) -> str:
    """Check that with a wrong secret a call connects without the relay, and the log says what to correct. Raises
    Failed.
    """
    local, data = folder / "wrong", folder / "wrong-data"
    services.configure(local, HOUSE)
    data.mkdir()
    text = (local / "parley.yaml").read_text()
    (local / "parley.yaml").write_text(re.sub(r"secret: \S+", "secret: of-another-server", text))
    found = {one.name: one for one in services.all_of(machine, local, data)}
    with running(machine, found["coturn"], data), running(machine, found["parley"], data) as one:
        wait_ready(one, "http://127.0.0.1:8000/health")
        answer = checks.talk("direct", checks.Place(CERTIFICATES, local / "keys"), [], "http://127.0.0.1:8000")
        lines = [line for line in one.said.splitlines() if "call.no_relay" in line]
    if not lines or not all("must match server.ice_servers" in line for line in lines):
        raise Failed(f"a wrong TURN secret: the log does not say what to correct: {lines or one.said}")
    return f"a wrong TURN secret: {lines[0][24:]}; {answer}"


def named(command: Sequence[str], options: Sequence[str]) -> Container:
    """Return a container with a unique name, since podman releases names late."""
    return parley(command, [*LOCKED, *options], f"parley-{uuid.uuid4().hex[:8]}")


@contextmanager
def half_a_gigabyte(machine: Machine) -> Generator[tuple[list[str], list[str]]]:
    """Yield podman's options for 512 MB without swap, or a command that limits podman and all its children to that."""
    if machine.counts_memory:
        yield ["--memory=512m", "--memory-swap=512m"], []
        return
    if not (MEMORY / "cgroup.procs").exists():
        raise Failed("neither podman nor control groups can limit memory on this machine")
    group = MEMORY / f"parley-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(512 << 20))
        yield [], ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        if shutil.which("rmdir"):
            subprocess.run(["rmdir", group], capture_output=True)


@contextmanager
def full_disk(folder: Path) -> Generator[Path]:
    """Yield a folder that everyone can write to, on a disk without free space."""
    disk = folder / "full"
    disk.mkdir()
    call(["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", disk])
    with suppress(OSError):
        (disk / "everything").write_bytes(bytes(1 << 20))
    try:
        yield disk
    finally:
        call(["umount", "-l", disk])


def only_ipv6() -> None:
    """Remove all IPv4 addresses from this network namespace, which nothing else uses."""
    call(["ip", "-4", "address", "flush", "dev", "lo"])
    call(["ip", "-4", "address", "flush", "dev", "house0"])
