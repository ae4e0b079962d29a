"""Mutation tests of the statements about the seed systems: each mutant deletes a behaviour, and a test must fail.

The mutants are in `tests/seeds/mutants.toml`. Each is applied to a copy of the repository, in which only the tests that
are marked with its statements run. Started by scripts/seeds.py --mutate.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "tests" / "seeds" / "mutants.toml"
QUICK = "not (attacks or gpu or soak or chaos or conformance or bench or media or ray or transitions)"
OUTCOMES = {0: "green", 1: "red", 5: "no test ran"}
"""Verdict by pytest's exit code; for any other code it is `broken` (the tests could not be collected)."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change that breaks the ``statements``: in ``file``, ``old`` becomes ``new``."""

    name: str
    statements: tuple[str, ...]
    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the file's text with the mutation. Raises ValueError if it no longer applies."""
        if (times := text.count(self.old)) != 1:
            raise ValueError(
                f"the mutant {self.name!r}: its old text occurs {times} times in {self.file} (must be once)"
            )
        return text.replace(self.old, self.new)


def mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Return all mutants in the order of the file. Raises ValueError for duplicate names."""
    known = msgspec.convert(tomllib.loads(path.read_text())["mutant"], list[Mutant])
    if len({mutant.name for mutant in known}) < len(known):
        raise ValueError(f"{path.name}: two mutants have the same name")
    return known


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run the mutants: repetitions, time limit, and the file that keeps outcomes between runs."""

    times: int
    minutes: float
    resume: Path | None


def run(chosen: Sequence[Mutant], proofs: dict[str, list[str]], plan: Plan) -> int:
    """Run mutants until all are done or the time is up.

    Returns 0 if all mutants were red, 1 if one was not, 3 if some are left.
    """
    until_s = time.monotonic() + 60 * plan.minutes
    seen = _seen(plan.resume)
    with _copy() as tree:
        intact = _Intact(tree)
        for mutant in chosen:
            while len(outcomes := seen.setdefault(mutant.name, [])) < plan.times:
                outcome = _outcome(mutant, _tests(mutant, proofs), intact, until_s)
                if outcome is None:
                    return _report(chosen, seen, plan.times)
                outcomes.append(outcome)
                print(f"{outcome:8} {mutant.name}", flush=True)
                if plan.resume is not None:
                    plan.resume.write_text(json.dumps(seen, indent=1))
    return _report(chosen, seen, plan.times)


def _tests(mutant: Mutant, proofs: dict[str, list[str]]) -> list[str]:
    return sorted({test for statement in mutant.statements for test in proofs.get(statement, ())})


def _seen(resume: Path | None) -> dict[str, list[str]]:
    return json.loads(resume.read_text()) if resume is not None and resume.exists() else {}


class _Intact:
    """The unmutated copy. Tests that fail there prove nothing. Each set of tests runs once."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._outcomes: dict[tuple[str, ...], str] = {}

    def outcome(self, tests: Sequence[str], until_s: float) -> str:
        key = tuple(tests)
        if key not in self._outcomes:
            self._outcomes[key] = OUTCOMES.get(_pytest(tests, self.tree, until_s), "broken")
        return self._outcomes[key]


def _outcome(mutant: Mutant, tests: Sequence[str], intact: _Intact, until_s: float) -> str | None:
    """Run a mutant's tests, and the failed one without the mutant; None if the time is up before."""
    path = intact.tree / mutant.file
    whole = path.read_text()
    try:
        path.write_text(mutant.applied(whole))
        outcome = OUTCOMES.get(_pytest(tests, intact.tree, until_s, mutant.name), "broken")
        path.write_text(whole)
        if outcome in ("red", "broken"):
            failed = _failed(intact.tree, mutant.name) if outcome == "red" else tests
            if (before := intact.outcome(failed, until_s)) != "green":
                return f"{before} without it"
        return outcome
    except subprocess.TimeoutExpired:
        return None
    finally:
        path.write_text(whole)


def _pytest(tests: Sequence[str], tree: Path, until_s: float, memory: str = "intact") -> int:
    """Run tests until one fails, those that failed before under the same ``memory`` first."""
    options = ["-x", "-q", "-n", "0", "--failed-first", "-o", f"cache_dir={_cache(tree, memory)}", "-m", QUICK]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    left_s = max(until_s - time.monotonic(), 0.0)
    return subprocess.run(command, cwd=tree, env=environment, timeout=left_s, capture_output=True).returncode


def _failed(tree: Path, memory: str) -> list[str]:
    """Return the tests that failed, without their parameters."""
    found = json.loads((_cache(tree, memory) / "v" / "cache" / "lastfailed").read_text())
    return sorted({test.partition("[")[0] for test in found})


def _cache(tree: Path, memory: str) -> Path:
    return tree / ".mutants" / hashlib.sha256(memory.encode()).hexdigest()


@contextmanager
def _copy() -> Generator[Path]:
    """Yield a temporary copy of the working tree, including uncommitted changes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield tree


def _report(chosen: Sequence[Mutant], seen: dict[str, list[str]], times: int) -> int:
    done = [mutant for mutant in chosen if len(seen.get(mutant.name, ())) >= times]
    red = [mutant for mutant in done if set(seen[mutant.name]) == {"red"}]
    print(f"\n{len(red)} of {len(chosen)} mutants are red, {times} times of {times}")
    for mutant in done:
        if mutant not in red:
            print(f"not red: {mutant.name} ({', '.join(mutant.statements)}): {', '.join(seen[mutant.name])}")
    if len(done) < len(chosen):
        print(f"{len(chosen) - len(done)} are left. Run again with the same --resume FILE")
    return 1 if len(red) < len(done) else 3 if len(done) < len(chosen) else 0
