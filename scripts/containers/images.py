"""Builds the images: root file systems by mmdebstrap where no registry can be reached, and Parley's with the
Dockerfile.

This machine's pip configuration (its index, folders, certificate) enters the build as a secret and as mounts, and is in
no image.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.containers.machine import ROOT, Failed, Machine, call, call_logged

SUITE = "bookworm"
BASE = "python3,python3-venv,ca-certificates"
SERVICES = "coturn,caddy,prometheus,ca-certificates"
MOST_MB = 650
CERTIFICATES = "/run/host-certificates.pem"
PIP_LOGS = "/run/pip"
"""Folder within the build where pip writes its log."""
GOT = re.compile(r"^Get:.+ \[([\d.,]+) (k?B|[MG]B)\]$")
"""apt's line for one downloaded file."""
UNITS = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}


def build(machine: Machine, base: str | None) -> int:
    """Build parley:cpu and parley-services, and return the size of parley:cpu in MB. Raises Failed."""
    if base is None:
        base = imported(machine, "parley-base", BASE)
    imported(machine, "parley-services", SERVICES)
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "pip.conf"
        conf.write_text("\n".join(["[global]", *pip_lines(), f"log = {PIP_LOGS}/pip.log", ""]))
        pip_log(machine).parent.mkdir(exist_ok=True)
        mounts = [f"--volume={path}:{where}:ro" for path, where in pip_mounts()]
        mounts.append(f"--volume={pip_log(machine).parent}:{PIP_LOGS}:rw")
        build = ["build", "--layers", "--isolation=chroot", "--format=docker", f"--build-arg=BASE={base}"]
        call([*machine.buildah, *build, f"--secret=id=pip,src={conf}", *mounts, "--tag=parley:cpu", "."], 1800)
    return check_size(machine)


def check_size(machine: Machine) -> int:
    """Return the size of parley:cpu in MB. Raises Failed if it is too large."""
    size = int(call([*machine.podman, "image", "inspect", "--format={{.Size}}", "parley:cpu"])) // 1_000_000
    if size > MOST_MB:
        raise Failed(f"the image takes {size} MB, more than the allowed {MOST_MB} MB")
    return size


def imported(machine: Machine, name: str, packages: str) -> str:
    """Return the name of an image that is a Debian root with these packages; made if it does not exist."""
    image = f"localhost/{name}:{SUITE}"
    if subprocess.run([*machine.podman, "image", "exists", image], capture_output=True).returncode != 0:
        tar = machine.folder / f"{name}.tar"
        if not tar.exists():
            part = machine.folder / f"{name}.part.tar"
            debian(part, packages, root_log(machine, name))
            part.rename(tar)
        call([*machine.podman, "import", "--quiet", tar, image], 300)
    return image


def debian(where: Path, packages: str, log: Path) -> None:
    """Create a Debian root with these packages, as a folder or a tar. Raises Failed."""
    call_logged(["mmdebstrap", "--verbose", "--variant=minbase", f"--include={packages}", SUITE, where], log, 1200)


def root_log(machine: Machine, name: str) -> Path:
    """Return the file with mmdebstrap's output for a root."""
    return machine.folder / f"{name}.log"


def pip_log(machine: Machine) -> Path:
    """Return the file with pip's log of the last build of Parley's image; missing if its layer was cached."""
    return machine.folder / "pip" / "pip.log"


def debian_mb(log: Path) -> float:
    """Return the megabytes of packages and package lists that apt downloaded for a root."""
    lines = set(log.read_text(errors="replace").splitlines())  # a forked apt process repeats some lines
    found = filter(None, map(GOT.match, lines))
    return sum(float(one[1].replace(",", "")) * UNITS[one[2]] for one in found)


def pip_settings() -> dict[str, str]:
    """Return pip's configuration on this machine; environment variables take precedence, as in pip."""
    found: dict[str, str] = {}
    for line in call([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        found.setdefault(name.rpartition(".")[2], value.strip("'\""))
    return found


def pip_lines() -> Iterator[str]:
    """Yield the lines of the pip configuration for the build."""
    settings = pip_settings()
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host", "default-timeout", "proxy"):
        if name in settings:
            yield f"{name} = {' '.join(settings[name].split())}"
    if "cert" in settings:
        yield f"cert = {CERTIFICATES}"


def pip_mounts() -> Iterator[tuple[str, str]]:
    """Yield the local files and folders that the pip configuration names, and their paths within the build."""
    settings = pip_settings()
    if "cert" in settings:
        yield settings["cert"], CERTIFICATES
    named = " ".join(settings.get(name, "") for name in ("index-url", "extra-index-url", "find-links")).split()
    for path in {Path(one.removeprefix("file://")) for one in named if one.startswith(("file:///", "/"))}:
        folder = path.parent if path.name == "simple" else path  # the files of an index are in its parent folder
        if folder.is_dir() and not folder.is_relative_to(ROOT):
            yield str(folder), str(folder)
