"""Code shared by the benchmarks' command lines: parser, deployment under test, and exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from app.bench import stoppable
from app.bench.figures import percentile
from app.bench.subject import Served
from app.bench.target import spoken
from app.media.audio import MediaError
from engine import EngineError


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows a module's docstring unchanged."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def deployment_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options for the deployment and the output file."""
    made = parser(description)
    made.add_argument("-c", "--config", help="a YAML file, or a name in configs/ (nano)")
    made.add_argument("--weights", help="a folder of weights, or an id on the Hugging Face hub")
    made.add_argument("--speech", type=Path, metavar="FILE", help="a recording to play to the server")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    return made


def numbers(listed: str) -> tuple[int, ...]:
    """Parse an option such as ``1,8,16``."""
    parts = [part.strip() for part in listed.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{listed!r} is not a list of positive integers, such as 1,8,16")
    return tuple(map(int, parts))


def served(asked: argparse.Namespace) -> Served:
    """Return the deployment that the options select. Raises EngineError or MediaError."""
    weights = asked.weights
    if weights is not None and Path(weights).exists():  # the server's configuration is in another folder
        weights = str(Path(weights).absolute())
    return Served(asked.config, weights, asked.speech and spoken(asked.speech))


def spread(values: Sequence[float]) -> str:
    """Return p50 and p95 as a table's cell, without decimals."""
    return " / ".join(f"{percentile(values, percent):.0f}" for percent in (50, 95)) if values else "–"


def check_bar(name: str, value: float, sense: str, bar: float, unit: str) -> bool:
    """Print a value and its bar, and return whether it is met. ``sense`` is ``<=`` or ``>=``."""
    good = value >= bar if sense == ">=" else value <= bar
    print(f"{'ok  ' if good else 'MISS'} {name}: {value:.4g} {unit} (bar {sense} {bar:g})", flush=True)
    return good


async def run_named(description: str | None, benches: Mapping[str, Callable[[bool], Awaitable[bool]]]) -> int:
    """Run the benches that the command line names, or all. Returns the exit status: 0 if all bars were met.

    Each bench receives whether it should be quick, and returns whether its bars were met.
    """
    made = parser(description)
    made.add_argument("names", nargs="*", metavar="NAME", choices=[*benches], help=", ".join(benches))
    made.add_argument("--quick", action="store_true", help="measure with fewer repetitions")
    asked = made.parse_args()
    results = [await benches[name](asked.quick) for name in asked.names or benches]
    return int(not all(results))


def status(measure: Callable[[], bool]) -> int:
    """Run the measurement and return the exit status: 0 if all bars were met. An error ends the program with one
    sentence.
    """
    try:
        with stoppable():
            return int(not measure())
    except (EngineError, MediaError) as error:
        sys.exit(f"error: {error}")
