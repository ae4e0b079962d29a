"""Run the engine's and the workers' tests among other versions than those that Parley is developed with.

    python -m scripts.versions PYTHON [NAME==VERSION ...] [-- PYTEST-ARGUMENT ...]

For ``3.12 torch==2.11.0 transformers==5.17.0`` it makes an environment of Python 3.12 in ``build/versions``, once, with
what the extra ``dev`` needs. The packages that are named have these versions, whatever ``pyproject.toml`` says of them,
and all others those of ``constraints.txt``. There it runs those tests of ``tests/worker`` and ``tests/engine`` that
`make test` runs, or whatever stands behind ``--``. Needs a network for the first run. Knows no test.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from scripts import suites, wheel

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "build" / "versions"
EXTRA = "dev"
BUILDER = "setuptools"  # pinned for builds alone; a torch may want an older one
TESTS = ("tests/worker", "tests/engine")


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, and run the tests in it; pytest's exit code."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    (name, *pins), chosen = arguments[:end] or [""], arguments[end + 1 :]
    if not re.fullmatch(r"\d+\.\d+", name) or not all(map(_is_pin, pins)):
        print("Name a Python and versions, like this: 3.12 torch==2.11.0 transformers==5.17.0", file=sys.stderr)
        return 2
    python = wheel.find(f"python{name}")
    if python is None:
        print(f"Python {name} is not here, on the PATH or in pyenv. Install it, and try again.", file=sys.stderr)
        return 1
    folder = MADE / "-".join([name, *(pin.replace("==", "-") for pin in sorted(pins))])
    if not (folder / "made").exists():
        try:
            make(python, folder, pins)
        except subprocess.CalledProcessError as error:
            print(f"The environment could not be made; pip's message above says why ({error}).", file=sys.stderr)
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
    """Make an environment that has these versions, and what the extra needs beside them. Raises CalledProcessError."""
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    named = {BUILDER, *(_name(pin) for pin in pins)}
    wanted, held = folder / "requirements.txt", folder / "constraints.txt"
    wanted.write_text("\n".join([*pins, *(line for line in needs(EXTRA) if _name(line) not in named)]))
    known = (ROOT / "constraints.txt").read_text().splitlines()
    held.write_text("\n".join(line for line in known if line.startswith("#") or _name(line) not in named))
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(wanted), "-c", str(held)], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    (folder / "made").touch()


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def needs(*extras: str) -> Iterator[str]:
    """What the project needs by itself, and for these extras: the lines of ``pyproject.toml``, without its own name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from project["dependencies"]
    todo = list(extras)
    while todo:
        for line in project["optional-dependencies"][todo.pop()]:
            one = Requirement(line)
            if one.name != project["name"]:
                yield line
            elif one.marker is None or one.marker.evaluate():
                todo += one.extras


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
