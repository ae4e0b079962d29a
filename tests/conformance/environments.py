"""One environment for each client, made on demand from its pinned requirements: `make conformance` runs this.

    python tests/conformance/environments.py [CLIENT …]

A folder here with a ``requirements.txt`` or a ``package-lock.json`` is an environment's recipe; what it makes lies in
``.conformance/``, which git ignores. Only this program uses the network: it downloads the clients and what they depend
on from the Python and npm registries, up to 420 MB on disk each, and nothing if they are there. Knows no test.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RECIPES = Path(__file__).resolve().parent
MADE = RECIPES.parents[1] / ".conformance"


@dataclass(frozen=True, slots=True)
class Environment:
    """What a client's programs run in."""

    name: str

    @property
    def recipe(self) -> Path:
        return RECIPES / self.name

    @property
    def folder(self) -> Path:
        return MADE / self.name

    @property
    def is_python(self) -> bool:
        return (self.recipe / "requirements.txt").exists()

    @property
    def pins(self) -> Path:
        return self.recipe / ("requirements.txt" if self.is_python else "package-lock.json")

    @property
    def tool(self) -> str:
        """What runs a program of it."""
        return str(self.folder / "bin" / "python") if self.is_python else "node"

    @property
    def ready(self) -> bool:
        """Whether it is there, and made from the present pins."""
        return self._stamp.exists() and self._stamp.read_text() == self._print()

    def make(self) -> None:
        """Make it anew. Raises CalledProcessError, OSError."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.is_python:
            venv.create(self.folder, with_pip=True)
            install = [self.tool, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(self.pins)]
            subprocess.run(install, check=True)
        else:
            self.folder.mkdir(parents=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(self.recipe / name, self.folder)
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=self.folder, check=True)
        self._stamp.write_text(self._print())

    @property
    def _stamp(self) -> Path:
        return self.folder / "pins.sha256"

    def _print(self) -> str:
        return hashlib.sha256(self.pins.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Client:
    """One way of using what an environment holds: a program in its recipe, ``client.*`` or ``client_VARIANT.*``."""

    environment: Environment
    program: str

    @property
    def name(self) -> str:
        variant = Path(self.program).stem.removeprefix("client")
        return self.environment.name + variant

    @property
    def insists_on_tls(self) -> bool:
        return self.environment.name == "openai_node"


def clients() -> Iterator[Client]:
    for environment in environments():
        for path in sorted(environment.recipe.glob("client*")):
            yield Client(environment, path.name)


def environments() -> Iterator[Environment]:
    """All that there is a recipe for."""
    for folder in sorted(RECIPES.iterdir()):
        if (folder / "requirements.txt").exists() or (folder / "package-lock.json").exists():
            yield Environment(folder.name)


def main(names: list[str]) -> int:
    known = {one.name: one for one in environments()}
    if unknown := set(names) - known.keys():
        print(f"unknown client {', '.join(sorted(unknown))}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        if known[name].ready:
            continue
        if not known[name].is_python and shutil.which("npm") is None:
            print(f"{name} needs npm, which is not installed", file=sys.stderr)
            return 1
        begun_s = time.monotonic()
        print(f"{name}: downloading what {known[name].pins.relative_to(RECIPES)} names …", flush=True)
        known[name].make()
        print(f"{name}: made in {time.monotonic() - begun_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
