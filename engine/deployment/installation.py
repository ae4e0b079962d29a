"""The name of Parley's distribution, and the commands that install packages where this process runs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

DISTRIBUTION = "parley-voice"
ROOT = Path(__file__).parents[2]
"""The repository's folder in a clone."""

_REQUIREMENT = re.compile(r'(?P<package>[^;]+?)\s*;\s*(?:(?P<marker>.+) and )?extra == "(?P<extra>[^"]+)"')
_OF_EXTRAS = re.compile(rf"{DISTRIBUTION}\[(?P<extras>[^]]+)]")


def is_clone() -> bool:
    """Return whether Parley runs from a clone of the repository, which has `make`."""
    return (ROOT / "Makefile").is_file()


def install_command(extra: str) -> str:
    """Return the shell command that installs the packages of an extra into the running environment.

    In a clone, the command installs Parley in editable mode with the extra. For an installed wheel, it names the
    extra's packages one by one: this needs no release of Parley on a package index, and keeps the installed version.
    The container image has no installer and cannot be written to, so there it builds the image with the extra.
    """
    installer = _installer()
    if installer is None:
        return shlex.join(["docker", "build", "--build-arg", f"EXTRAS={extra}", "--tag", "parley", "."])
    if is_clone():
        wanted = ["--constraint", _shown(ROOT / "constraints.txt"), "--editable", f"{_shown(ROOT)}[{extra}]"]
    else:
        wanted = [*_requirements(extra)] or [f"{DISTRIBUTION}[{extra}]"]
    return f"{installer} {shlex.join(wanted)}"


def worker_install_command(python: str, packages: Sequence[str]) -> str:
    """Return the shell command that installs this version of Parley into another environment, for a worker there.

    Args:
        python: The other environment's interpreter, which has pip.
        packages: The requirements to install. Parley's own dependencies are left out.
    """
    pip = [python, "-m", "pip", "install"]
    if is_clone():
        parley = ["--editable", _shown(ROOT)]
    else:
        parley = [_origin() or f"{DISTRIBUTION}=={importlib.metadata.version(DISTRIBUTION)}"]
    return f"{shlex.join([*pip, *packages])} && {shlex.join([*pip, '--no-deps', *parley])}"


def _origin() -> str | None:
    """Return the URL of the file that Parley was installed from; None if it came from a package index."""
    record = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    return None if record is None else json.loads(record)["url"]


def _installer() -> str | None:
    """Return the command that installs packages here, without the packages; None in an image that has none."""
    python = shlex.quote(_shown(Path(sys.executable)))
    if _has_pip():
        return f"{python} -m pip install"
    if shutil.which("uv") is not None:
        return f"uv pip install --python {python}"
    if os.access(sysconfig.get_path("purelib"), os.W_OK):
        return f"{python} -m ensurepip && {python} -m pip install"
    return None


def _has_pip() -> bool:
    """Return whether this environment has pip, by its metadata. (Looking for the module would change distutils.)"""
    try:
        importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _requirements(extra: str) -> Iterator[str]:
    """Yield the requirements of an extra of the installed distribution, including those of its own extras."""
    for line in _all_requirements():
        found = _REQUIREMENT.fullmatch(line)
        if found is None or found["extra"] != extra:
            continue
        own = _OF_EXTRAS.fullmatch(found["package"])
        if own is not None:
            for name in own["extras"].split(","):
                yield from _requirements(name)
        else:
            yield f"{found['package']}; {found['marker']}" if found["marker"] else found["package"]


def _all_requirements() -> list[str]:
    """Return the distribution's requirements; none where its files are on the path without an installation."""
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _shown(path: Path) -> str:
    """Return a path as a command names it: a relative one in the folder of the clone."""
    relative = path.is_relative_to(ROOT) and Path.cwd() == ROOT
    return str(path.relative_to(ROOT)) if relative else str(path)
