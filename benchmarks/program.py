"""Code shared by the benchmarks' command lines: parser, deployment under test, and exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
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
    return Served(asked.config, asked.weights, asked.speech and spoken(asked.speech))


def spread(values: Sequence[float]) -> str:
    """Return p50 and p95 as a table's cell, without decimals."""
    return " / ".join(f"{percentile(values, percent):.0f}" for percent in (50, 95)) if values else "–"


def status(measure: Callable[[], bool]) -> int:
    """Run the measurement and return the exit status: 0 if all bars were met. An error ends the program with one
    sentence.
    """
    try:
        with stoppable():
            return int(not measure())
    except (EngineError, MediaError) as error:
        sys.exit(f"error: {error}")
