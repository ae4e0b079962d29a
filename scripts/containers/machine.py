"""The machine that runs the containers: its requirements, a separate podman storage, and podman's options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDS = ("buildah", "podman", "crun", "catatonit", "mmdebstrap", "unshare", "ip")
HYBRID = Path("/sys/fs/cgroup/unified")
"""Mount of a machine that has both versions of control groups; crun refuses to run there."""


class Failed(Exception):
    """A check failed; the text says what to do."""


def check() -> None:
    """Raise Failed if tools are missing or the user is not root."""
    missing = [name for name in NEEDS if shutil.which(name) is None]
    if missing:
        raise Failed(
            f"{', '.join(missing)} not found: apt-get install buildah podman crun catatonit mmdebstrap iproute2"
        )
    if os.geteuid() != 0:
        raise Failed("run this as root: it creates network namespaces and Debian root file systems")


def call(command: Sequence[str | Path], timeout_s: float = 60, **more: str) -> str:
    """Run a command, and return its output. Raises Failed with the last lines of its output."""
    return _checked(_done(command, timeout_s, more)).stdout.strip()


def call_logged(command: Sequence[str | Path], log: Path, timeout_s: float = 60) -> None:
    """Run a command, and write its output to ``log``. Raises Failed."""
    done = _done(command, timeout_s, {})
    log.write_text(done.stdout + done.stderr)
    _checked(done)


def _done(command: Sequence[str | Path], timeout_s: float, more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    words, env = [str(word) for word in command], {**os.environ, **more}
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, env=env)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words[:3])} … took longer than {timeout_s:g} s, and was killed") from None


def _checked(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise Failed(f"{' '.join(done.args[:3])} … exited with {done.returncode}:\n{said}")
    return done


@dataclass(frozen=True)
class Machine:
    """A machine on which containers run; ``folder`` holds all files that are created."""

    folder: Path

    @property
    def storage(self) -> list[str]:
        """Options of podman and buildah for a separate storage, so that no other images are touched."""
        where = [f"--root={self.folder}/storage", f"--runroot={self.folder}/run"]
        return [*where, "--storage-driver=vfs"]

    @cached_property
    def podman(self) -> list[str]:
        return ["podman", *self.storage, "--cgroup-manager=cgroupfs", "--events-backend=file"]

    @cached_property
    def buildah(self) -> list[str]:
        return ["buildah", *self.storage]

    @cached_property
    def limits(self) -> list[str]:
        """Options that a container needs in order to start on this machine, found by trial. Raises Failed if none
        starts.
        """
        most = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
        for options in (most, [*most, "--cgroups=disabled"]):
            if self._starts(options):
                return options
        if HYBRID.is_mount():
            call(["umount", "-l", HYBRID])  # only in this process's mount namespace
            if self._starts(options := [*most, "--cgroups=disabled"]):
                return options
        raise Failed("podman cannot start a container here: try `podman run --rm --network host parley:cpu --version`")

    def _starts(self, options: Sequence[str]) -> bool:
        run = ["run", "--rm", "--network=host", *options, "--entrypoint=python", "parley:cpu", "-c", ""]
        return subprocess.run([*self.podman, *run], capture_output=True, timeout=120).returncode == 0

    @property
    def counts_memory(self) -> bool:
        """Whether podman can limit a container's memory here."""
        return "--cgroups=disabled" not in self.limits


def in_namespaces(arguments: Sequence[str]) -> int:
    """Run this program again in a separate network and mount namespace, and return its exit status."""
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "scripts.containers", *arguments]
    return subprocess.run(command, cwd=ROOT).returncode
