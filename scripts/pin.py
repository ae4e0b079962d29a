"""Write constraints.txt: the version of every package that Parley and its extras installed in this environment.

Run it with ``make constraints``, in an environment where ``pip install -e .[dev,device]`` has resolved freely. The
first lines state the download sizes, measured with pip, so that the installer can show them in advance. Package sources
come from pip's own configuration.
"""

from __future__ import annotations

import importlib.metadata as metadata
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

TARGET = Path(__file__).resolve().parent.parent / "constraints.txt"
PROJECT = "parley-voice"
EXTRAS = ("dev", "device")  # together they include every other extra
HEADER = """\
# Written by scripts/pin.py (`make constraints`): the versions that Parley is tested with. Don't edit by hand.
# Downloads, in MB: base {base}, local {local}, dev {dev}, demo {demo}, docs {docs} (torch as its CPU build).
"""


def main() -> None:
    dev, everything = closure(("dev",)), closure(EXTRAS)
    build = {"setuptools": release("setuptools")}
    installed = {"base": closure(()), "dev": dev} | {extra: closure((extra,)) for extra in ("local", "demo", "docs")}
    sizes = {name: download_mb(packages | build) for name, packages in installed.items()}
    own = marked()
    alike = [f"{name}=={version}" for name, version in (everything | build).items() if name not in own]
    lines = sorted([*alike, *(line for lines in own.values() for line in lines)])
    TARGET.write_text(HEADER.format(**sizes) + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(everything | build)} packages pinned; {sizes['base']} MB to serve, {sizes['dev']} MB to develop")


def marked() -> dict[str, list[str]]:
    """Return the requirement lines of packages whose version depends on the platform."""
    requirements = map(Requirement, metadata.requires(PROJECT) or ())
    lines: dict[str, list[str]] = {}
    for one in requirements:
        if one.marker and str(one.specifier).startswith("==") and "extra" not in str(one.marker):
            lines.setdefault(canonicalize_name(one.name), []).append(str(one))
    return lines


def closure(extras: tuple[str, ...], of: str = PROJECT) -> dict[str, str]:
    """Return every installed package that the project (or ``of``) needs with ``extras``, with its version."""
    pins: dict[str, str] = {}
    todo = [(of, frozenset(extras))]
    seen = set(todo)
    while todo:
        package, wanted = todo.pop()
        if package != PROJECT:
            pins[package] = release(package)
        for requirement in map(Requirement, metadata.requires(package) or ()):
            child = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if applies(requirement, wanted) and child not in seen:
                seen.add(child)
                todo.append(child)
    return pins


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Return whether a requirement applies on this machine, for one of the extras or without any."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})


def release(name: str) -> str:
    """Return the installed version without its local label: ``2.13.0+cpu`` becomes 2.13.0, which matches any build."""
    return Version(metadata.version(name)).public


def download_mb(pins: dict[str, str]) -> int:
    """Return the download size of these packages on a fresh machine, in MB."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*pip, *(f"{name}=={version}" for name, version in pins.items())], check=True)
        return round(sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6)


if __name__ == "__main__":
    main()
