"""The images: roots by mmdebstrap where no registry is reached, and Parley's by the Dockerfile. Knows no network.

pip's configuration on this machine (an index of its own, folders, a certificate) goes into the build as a secret and as
mounts, and into no image.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.containers.machine import ROOT, Failed, Machine, call

SUITE = "bookworm"
BASE = "python3,python3-venv,ca-certificates"
SERVICES = "coturn,caddy,prometheus,ca-certificates"
MOST_MB = 650
CERTIFICATES = "/run/host-certificates.pem"


def build(machine: Machine, base: str | None) -> int:
    """Build parley:cpu and parley-services; the size of the first in MB. Raises Failed."""
    if base is None:
        base = imported(machine, "parley-base", BASE)
    imported(machine, "parley-services", SERVICES)
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "pip.conf"
        conf.write_text("[global]\n" + "".join(f"{line}\n" for line in pip_lines()))
        mounts = [f"--volume={path}:{where}:ro" for path, where in pip_mounts()]
        build = ["build", "--layers", "--isolation=chroot", "--format=docker", f"--build-arg=BASE={base}"]
        call([*machine.buildah, *build, f"--secret=id=pip,src={conf}", *mounts, "--tag=parley:cpu", "."], 1800)
    return check_size(machine)


def check_size(machine: Machine) -> int:
    """The image's size in MB. Raises Failed where it is too large."""
    size = int(call([*machine.podman, "image", "inspect", "--format={{.Size}}", "parley:cpu"])) // 1_000_000
    if size > MOST_MB:
        raise Failed(f"the image takes {size} MB, and {MOST_MB} at most are allowed")
    return size


def imported(machine: Machine, name: str, packages: str) -> str:
    """The name of an image that is a Debian root with these packages."""
    image = f"localhost/{name}:{SUITE}"
    if subprocess.run([*machine.podman, "image", "exists", image], capture_output=True).returncode != 0:
        tar = machine.folder / f"{name}.tar"
        if not tar.exists():
            part = machine.folder / f"{name}.part.tar"
            call(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", SUITE, part], 1200)
            part.rename(tar)
        call([*machine.podman, "import", "--quiet", tar, image], 300)
    return image


def pip_settings() -> dict[str, str]:
    """pip's configuration here, without the certificate; variables win, as they do for pip."""
    found: dict[str, str] = {}
    for line in call([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        found.setdefault(name.rpartition(".")[2], value.strip("'\""))
    return found


def pip_lines() -> Iterator[str]:
    """The lines of the configuration that the build gets."""
    settings = pip_settings()
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host", "default-timeout", "proxy"):
        if name in settings:
            yield f"{name} = {' '.join(settings[name].split())}"
    if "cert" in settings:
        yield f"cert = {CERTIFICATES}"


def pip_mounts() -> Iterator[tuple[str, str]]:
    """The files and folders of this machine that the configuration names, and where the build finds them."""
    settings = pip_settings()
    if "cert" in settings:
        yield settings["cert"], CERTIFICATES
    named = " ".join(settings.get(name, "") for name in ("index-url", "extra-index-url", "find-links")).split()
    for path in {Path(one.removeprefix("file://")) for one in named if one.startswith(("file:///", "/"))}:
        folder = path.parent if path.name == "simple" else path  # the files that an index lists lie beside it
        if folder.is_dir() and not folder.is_relative_to(ROOT):
            yield str(folder), str(folder)
