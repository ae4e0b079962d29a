"""Run the engine's tests with other versions of Python and packages.

    python -m scripts.versions PYTHON [NAME==VERSION ...] [-- PYTEST-ARGUMENT ...]

For ``3.12 torch==2.11.0 transformers==5.17.0`` it creates an environment with Python 3.12 in ``build/versions`` once.
The named packages get these versions, regardless of ``pyproject.toml``. All others get those of ``constraints.txt``,
unless a named package needs another version. Then it runs the tests of ``tests/engine`` that `make test` runs, or the
ones after ``--``. The first run needs a network.
"""

from __future__ import annotations

import importlib.metadata as metadata
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from scripts import suites, wheel

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "build" / "versions"
TESTS = ("tests/engine",)


def main(arguments: list[str]) -> int:
    """Create the environment if needed, run the tests in it, and return pytest's exit code."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    (name, *pins), chosen = arguments[:end] or [""], arguments[end + 1 :]
    if not re.fullmatch(r"\d+\.\d+", name) or not all(map(_is_pin, pins)):
        print("Usage: python -m scripts.versions 3.12 torch==2.11.0 transformers==5.17.0", file=sys.stderr)
        return 2
    python = wheel.find(f"python{name}")
    if python is None:
        print(f"Python {name} is not on the PATH or in pyenv. Install it and try again.", file=sys.stderr)
        return 1
    folder = MADE / "-".join([name, *(pin.replace("==", "-") for pin in sorted(pins))])
    if not (folder / "made").exists():
        try:
            make(python, folder, pins)
        except subprocess.CalledProcessError as error:
            print(f"The environment could not be created; see pip's message above ({error}).", file=sys.stderr)
            return 1
    (ours, *_) = suites.runs([], [])
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-q", *ours, *(chosen or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=suites.environment()).returncode


def _is_pin(text: str) -> bool:
    try:
        return str(Requirement(text).specifier).startswith("==")
    except InvalidRequirement:
        return False


def make(python: str, folder: Path, pins: list[str]) -> None:
    """Create an environment with these versions and their dependencies, and pinned versions of everything else.

    Raises CalledProcessError.
    """
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *pins], check=True)
    rest = folder / "rest.txt"
    rest.write_text("\n".join(fitting(folder, pins)))
    subprocess.run([*pip, "--no-deps", "-r", str(rest)], check=True)  # the list includes all dependencies
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    (folder / "made").touch()


def fitting(folder: Path, pins: list[str]) -> Iterator[str]:
    """Yield the lines of ``constraints.txt`` except for packages that must keep another version.

    These are the named packages, and packages that a kept one requires in another version.
    """
    found = metadata.distributions(path=[str(site) for site in folder.glob("lib/python*/site-packages")])
    there = {str(canonicalize_name(one.name)): one for one in found}
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    kept = {_name(pin) for pin in pins} | (there.keys() - {_name(line) for line in lines})
    theirs = [line for line in lines if _name(line) in there]
    while more := {_name(line) for line in theirs if not _fits(line, kept, there)} - kept:
        kept |= more
    yield from (line for line in lines if _name(line) not in kept)


def _fits(line: str, kept: set[str], there: Mapping[str, metadata.Distribution]) -> bool:
    """Return whether the kept packages allow the version in this line."""
    needs = (need for name in kept & there.keys() for need in there[name].requires or () if "extra ==" not in need)
    bounds = [one.specifier for one in map(Requirement, needs) if canonicalize_name(one.name) == _name(line)]
    return all(pin.version in bound for bound in bounds for pin in Requirement(line).specifier)


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
