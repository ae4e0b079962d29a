"""Run test suites and print a summary: results per suite, slowest tests, skipped tests, and missing tools.

Without arguments it runs `make test`: the tests that take minutes on a laptop, in parallel. ``slow`` (`make slow`) runs
the other tests that every commit must pass, in parallel. ``bench`` (`make timings`) runs tests that measure time, one
at a time. Names of heavy suites (chaos, soak, gpu, kernels, conformance, media, ray, attacks, transitions, real, bench)
run these. Words after ``--`` select tests by name. If npm is installed, the web page's packages are fetched once.
``PARLEY_REQUIRE=chromium,node`` makes a missing tool a failure.

    python -m scripts.suites [SUITE ...] [-- WORD ...]
"""

from __future__ import annotations

import heapq
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.guard import tools

ROOT = Path(__file__).resolve().parent.parent
SLOW = "slow"
SLOW_PATHS = (
    "tests/engine/worker/models/qwen", "tests/engine/worker/models/test_", "tests/web/", "tests/contracts/",
    "tests/engine/worker/models/nano/test_ears.py", "tests/chaos/", "tests/deploy/test_haproxy.py", "tests/soak/",
    "tests/app/bench/", "tests/app/test_surroundings.py",
    "tests/app/transports/test_pace_over_the_wire.py", "tests/app/transports/webrtc/test_resume.py", "tests/training/",
    "tests/examples/",
)  # fmt: skip
"""Path prefixes of slow tests: comparisons with reference models, real processes, the page in a browser, training.
`make slow` runs them and tests with the mark `slow`. `make test` does not import these files."""
HEAVY = ("chaos", "soak", "gpu", "kernels", "conformance", "media", "ray", "attacks", "transitions", "real", "bench")
TARGETS = {"bench": "timings"}  # `make bench` measures a deployment
TOOLS = ("chromium", "node", "haproxy", "nginx", "faketime", "namespaces", "triton")  # reported if missing
WORKERS = "2"  # on two cores, 3 or 4 workers are not faster, and browser tests get too little CPU
SLOWEST = 20  # tests that are listed
NPM = ("npm", "ci", "--no-audit", "--no-fund", "--loglevel", "error", "--fetch-retries", "1")
NO_TESTS = 5  # pytest's exit code when nothing was selected
OUTCOMES = ("passed", "failed", "error", "skipped")


@dataclass(slots=True)
class Suite:
    """Results of one test folder (or one file at the top level), over all runs."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0


def main(arguments: list[str]) -> int:
    """Run the requested suites and return the exit code."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    names, chosen = arguments[:end], arguments[end + 1 :]
    if unknown := set(names) - {SLOW, *HEAVY}:
        print(f"unknown suite {', '.join(sorted(unknown))}; known: {', '.join((SLOW, *HEAVY))}", file=sys.stderr)
        return 2
    fetch_page_packages()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        codes = [run_pytest(Path(folder) / f"{i}.xml", run) for i, run in enumerate(runs(names, chosen))]
        reports = sorted(Path(folder).glob("*.xml"))
        suites, skipped = read(reports)
        slowest = slow(reports)
    missing = missing_tools()
    show(suites, slowest, skipped, missing)
    others = [TARGETS.get(name, name) for name in (SLOW, *HEAVY) if name not in names]
    print(f"not part of this: {', '.join(f'make {name}' for name in others)}")
    required = [tool for tool in os.environ.get("PARLEY_REQUIRE", "").split(",") if tool in missing]
    if required:
        print(f"PARLEY_REQUIRE: {', '.join(required)} is missing")
    print(closing_line(suites, time.monotonic() - begun_s))
    bad = [code for code in codes if code not in (0, NO_TESTS)]
    return bad[0] if bad else int(bool(required) or not suites)


def fetch_page_packages() -> None:
    """Install the web page's test packages into web/node_modules if needed; print a message if npm fails."""
    lock = tools.WEB / "package-lock.json"
    if tools.INSTALLED.is_file() and tools.INSTALLED.stat().st_mtime >= lock.stat().st_mtime:
        return
    if not all(map(shutil.which, ("node", "npm"))):
        return
    print("Fetching the page's packages into web/node_modules, once.", flush=True)
    fetched = subprocess.run(NPM, cwd=tools.WEB, capture_output=True, text=True)
    if fetched.returncode == 0:
        tools.INSTALLED.touch()
    else:
        why = next((line for line in fetched.stderr.splitlines() if line.strip()), "no error message")
        print(f"npm could not install the page's packages ({why}). Tests that need them are skipped.", flush=True)


def runs(names: list[str], chosen: list[str]) -> Iterator[list[str]]:
    """Yield pytest's arguments for each run."""
    only = ["-k", " or ".join(chosen)] if chosen else []
    together = ["-n", WORKERS, "--dist", "worksteal", *only]
    others = " or ".join(HEAVY)
    if SLOW in names:
        yield [*together, "-m", f"{SLOW} and not ({others})", *files([SLOW], SLOW_PATHS)]
    if heavy := [name for name in names if name != SLOW]:
        if found := files(heavy):
            yield ["-s", "-m", " or ".join(heavy), "--timeout", "3600", *only, *found]  # they print figures
    elif not names:
        ignored = [f"--ignore-glob={ROOT / path}*" for path in SLOW_PATHS]
        yield [*together, "-m", f"not ({SLOW} or {others})", *ignored]


def files(marks: list[str], paths: tuple[str, ...] = ()) -> list[str]:
    """Return the test files that use one of the marks or start with one of the paths, to avoid importing the others."""
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [(str(path.relative_to(ROOT)), path) for path in every]
    return [name for name, path in named if name.startswith(paths) or uses(path, marks)]


def uses(path: Path, marks: list[str]) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(f"mark.{mark}" in text for mark in marks)


def run_pytest(report: Path, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment()).returncode


def environment() -> dict[str, str]:
    """Return the tests' environment without PYTHONDONTWRITEBYTECODE, so that hundreds of Python processes share
    compiled files.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def read(reports: list[Path]) -> tuple[dict[str, Suite], Counter[str]]:
    """Read pytest's reports: results per suite, and the number of skips per reason."""
    suites: defaultdict[str, Suite] = defaultdict(Suite)
    skipped: Counter[str] = Counter()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            suite = suites[suite_of(case.get("classname", ""))]
            suite.seconds += float(case.get("time", 0))
            results = {child.tag: child for child in case}
            outcome = next((tag for tag in ("failure", "error", "skipped") if tag in results), "passed")
            suite.outcomes[{"failure": "failed"}.get(outcome, outcome)] += 1
            if outcome == "skipped":
                skipped[results["skipped"].get("message", "no reason")] += 1
    return dict(sorted(suites.items())), skipped


def suite_of(classname: str) -> str:
    """Return the suite of a test class: ``tests.app.realtime.test_events`` is in tests/app, ``tests.test_repo`` in
    tests.
    """
    parts = classname.split(".")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def slow(reports: list[Path]) -> list[tuple[float, str]]:
    """Return the slowest tests with their seconds."""
    cases = (case for report in reports for case in ElementTree.parse(report).iter("testcase"))
    timed = ((float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in cases)
    return heapq.nlargest(SLOWEST, timed)


def missing_tools() -> dict[str, str]:
    """Return the missing tools, each with an explanation."""
    return {tool: why for tool in TOOLS if (why := tools.missing(tool))}


def show(
    suites: dict[str, Suite], slowest: list[tuple[float, str]], skipped: Counter[str], missing: dict[str, str]
) -> None:
    """Print the table, the slowest tests, the skip reasons and the missing tools."""
    table = Table("suite", *OUTCOMES, "seconds", title="suites")
    for name, suite in suites.items():
        counts = (str(suite.outcomes[outcome] or "") for outcome in OUTCOMES)
        table.add_row(name, *counts, f"{suite.seconds:.1f}")
    console = Console()
    console.print(table)
    for seconds, name in slowest:
        console.print(f"{seconds:6.1f} s  {name}", markup=False, highlight=False)
    for reason, count in skipped.most_common():
        console.print(f"skipped {count}: {reason}", markup=False)
    for why in missing.values():
        console.print(f"missing tool: {why}", markup=False)


def closing_line(suites: dict[str, Suite], seconds: float) -> str:
    """Return a summary line like pytest's own, over all runs."""
    total: Counter[str] = Counter()
    for suite in suites.values():
        total += suite.outcomes
    counts = ", ".join(f"{total[outcome]} {outcome}" for outcome in OUTCOMES if total[outcome]) or "no tests ran"
    return f" {counts} in {seconds:.2f}s ".center(80, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
