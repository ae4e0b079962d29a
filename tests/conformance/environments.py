"""One environment for each client, made on demand from its pinned requirements: `make conformance` runs this.

    python tests/conformance/environments.py [--or-skip] [CLIENT …]

A folder here with a ``requirements.txt`` or a ``package-lock.json`` is an environment's recipe; what it makes lies in
``.conformance/``, which git ignores. Only this program uses the network: it downloads the clients and what they depend
on from the Python and npm registries, up to 550 MB on disk each, and nothing if they are there. With ``--or-skip`` it
ends with code 3 and one sentence where a registry is not reached, or a tool is not here. Knows no test.

An oracle's recipe lies in ``tests/oracles`` and is made where it is named. One with a ``wheels.txt`` is unpacked
without what its wheels depend on, and read by this very Python. One with ``stubs``, in the place of packages that are
imported and not used, gets its pins as they stand.
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
ORACLES = RECIPES.parent / "oracles"
KINDS = ("requirements.txt", "package-lock.json", "wheels.txt")
MADE = RECIPES.parents[1] / ".conformance"
REACH_S = 120
"""A registry that does not say in this time whether it has a package is not there."""
SKIPPED = 3


class Missing(Exception):
    """An environment can't be made here, and why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a client's programs run in."""

    name: str
    root: Path = RECIPES

    @property
    def recipe(self) -> Path:
        return self.root / self.name

    @property
    def folder(self) -> Path:
        return MADE / self.name

    @property
    def is_python(self) -> bool:
        return self.pins.suffix == ".txt"

    @property
    def pins(self) -> Path:
        return next(path for kind in KINDS if (path := self.recipe / kind).exists())

    @property
    def unpacked(self) -> bool:
        return self.pins.name == "wheels.txt"

    @property
    def tool(self) -> str:
        """What runs a program of it."""
        if self.unpacked:
            return sys.executable
        return str(self.folder / "bin" / "python") if self.is_python else "node"

    @property
    def ready(self) -> bool:
        """Whether it is there, and made from the present pins."""
        return self._stamp.exists() and self._stamp.read_text() == self._print()

    def check(self) -> None:
        """Whether it could be made: its tool is here, and the registry answers. Raises Missing."""
        if not self.is_python and shutil.which("npm") is None:
            raise Missing(f"{self.name} needs npm, which is not installed")
        first = next(line for line in self.pins.read_text().splitlines() if "==" in line) if self.is_python else ""
        options = ("-q", "--dry-run", "--ignore-installed", "--no-deps", "--retries=0")
        pip = [sys.executable, "-m", "pip", "install", *options, first.split(" ")[0]]
        command = pip if self.is_python else ["npm", "ping", "--fetch-retries=0", "--loglevel=error"]
        try:
            subprocess.run(command, check=True, timeout=REACH_S, capture_output=True, text=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            lines = error.stderr.splitlines() if isinstance(error.stderr, str) else []
            said = next((f" ({line.strip()})" for line in lines if "error" in line.lower()), "")
            raise Missing(f"{self.name}: its registry is not reached{said}") from None

    def make(self) -> None:
        """Make it anew. Raises CalledProcessError, OSError."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.is_python:
            if not self.unpacked:
                venv.create(self.folder, with_pip=True)
            alone = ["--no-deps", "--target", str(self.folder)] if self.unpacked else []
            if (self.recipe / "stubs").is_dir():
                alone = ["--no-deps"]
            install = [self.tool, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(self.pins)]
            subprocess.run([*install, *alone], check=True)
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
    """One way of using what an environment holds: a program in its recipe.

    ``client.*`` and ``client_VARIANT.*`` hold Realtime sessions, ``live.*`` Live ones, ``over_http.*`` uses the HTTP
    API, ``over_responses.*`` its newest part, ``/v1/responses``, and ``over_mcp.*`` that with an MCP server's tools.
    """

    environment: Environment
    program: str

    @property
    def name(self) -> str:
        variant = Path(self.program).stem.removeprefix("client")
        return self.environment.name + (f"_{variant}" if variant.startswith(("over_", "live")) else variant)

    @property
    def insists_on_tls(self) -> bool:
        return self.environment.name == "openai_node"


def clients(programs: str = "client*") -> Iterator[Client]:
    """Those that hold Realtime sessions, or ``over_http*``, or ``over_responses*``."""
    for environment in environments():
        for path in sorted(environment.recipe.glob(programs)):
            yield Client(environment, path.name)


def environments() -> Iterator[Environment]:
    """All clients that there is a recipe for."""
    yield from _of(RECIPES)


def oracles() -> Iterator[Environment]:
    """All oracles that there is a recipe for."""
    yield from _of(ORACLES)


def _of(root: Path) -> Iterator[Environment]:
    for folder in sorted(root.iterdir()):
        if any((folder / kind).exists() for kind in KINDS):
            yield Environment(folder.name, root)


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if name != "--or-skip"]
    known = {one.name: one for one in (*environments(), *oracles())}
    if unknown := set(names) - known.keys():
        print(f"unknown client {', '.join(sorted(unknown))}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or [one.name for one in environments()]:
        if known[name].ready:
            continue
        try:
            known[name].check()
        except Missing as missing:
            print(f"the clients are not tried: {missing}", file=sys.stderr)
            return SKIPPED if "--or-skip" in arguments else 1
        begun_s = time.monotonic()
        print(f"{name}: downloading what {known[name].pins.relative_to(RECIPES.parent)} names …", flush=True)
        known[name].make()
        print(f"{name}: made in {time.monotonic() - begun_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
