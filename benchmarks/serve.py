"""Measure how many answers per second a server gives over HTTP, and whether each is correct.

    python -m benchmarks.serve [-c CONFIG] [--weights DIR] [--replicas 1,2] [--at-once 1,8,16,64] [--json FILE]
    python -m benchmarks.serve --url URL [--key-file FILE] [--rate N] [--voices NAME,…]

Without ``--url``, it starts servers for the deployment one after another, with each number of replicas per worker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app.bench.figures import Figure, percentile, report
from app.bench.sessions import counted
from app.bench.subject import Changes, Served
from app.bench.target import BenchError
from app.commands import terminal
from app.commands.deployment import deployment
from app.commands.server import Address, RemoteServer
from benchmarks import program
from benchmarks.loads import PATIENCE_S, Load, Plan, loads, same_words, transcribed
from engine import EngineError, EngineSpec
from engine.aio import event_loop

WAIT_S = 600.0  # in the queue for a slot; included in the measured times

Spread = tuple[float, float, float]
"""Mean, p50 and p99."""


class Report:
    """The loads of one run, and their figures."""

    def __init__(self) -> None:
        self.loads: list[Load] = []
        self.misunderstood: list[str] = []
        self.transcribed = 0

    async def measure(self, address: Address, plan: Plan, replicas: int = 1) -> None:
        """Ask a server all questions of the plan that it supports. Raises EngineError if it supports none."""
        refused: list[EngineError] = []
        async with RemoteServer(address, PATIENCE_S) as server:
            for kind in plan.kinds():
                with terminal.waiting(f"{kind.name}, {_replicas(replicas)} …"):
                    try:
                        found = await loads(server, plan, kind, replicas)
                    except EngineError as error:
                        refused.append(error)
                        terminal.say(f"left out: {error}")
                        continue
                    self.loads += found
                    await self.listen(server, found[0])
        if len(refused) == len(plan.kinds()):
            raise refused[0]

    async def listen(self, server: RemoteServer, load: Load) -> None:
        """Transcribe the spoken texts with the server's speech recognition, each once, because the others sound
        alike.
        """
        for request, sound in zip(load.kind.requests, load.alone, strict=True):
            if request.say is None or (words := await transcribed(server, sound)) is None:
                return
            self.transcribed += 1
            if not same_words(words, request.say):
                self.misunderstood.append(f"{request.say} ({words or 'nothing'})")

    def figures(self, exact: bool) -> list[Figure]:
        """Return the figures. Only with float32 weights (``exact``), answers under load must equal those alone."""
        answers = [answer for load in self.loads for answer in load.answers]
        failed = [answer.outcome for answer in answers if not answer.complete]
        late, different, leaked = (
            float(sum(counts))
            for counts in (
                (answer.late for answer in answers),
                (len(load.different) for load in self.loads),
                (len(load.leaked) for load in self.loads),
            )
        )
        name = f"{len(answers)} answers"
        words = Figure(
            name=f"{self.transcribed} texts said: not heard back",
            value=float(len(self.misunderstood)),
            unit="",
            bar=0,
            note="; ".join(self.misunderstood),
        )
        return [
            Figure(name=f"{name}: failed", value=float(len(failed)), unit="", bar=0, note=counted(failed)),
            Figure(name=f"{name}: another's sound", value=leaked, unit="", bar=0),
            Figure(
                name=f"{name}: not the sound that they have alone",
                value=different,
                unit="",
                bar=0 if exact else None,
                note=counted([parting for load in self.loads for parting in load.partings]),
            ),
            Figure(name=f"{name}: sound behind the end", value=late, unit="", bar=0),
            *([words] if self.transcribed else []),
        ]

    def show(self, console: Console) -> None:
        """Print a table with one line per load."""
        table = Table(
            "asked",
            "replicas",
            "load",
            "answers / s",
            "sound s / s",
            "first sound, ms",
            "whole answer, s",
            "RTF",
            caption="mean / p50 / p99",
        )
        for load in self.loads:
            figures = statistics_of(load)
            first, whole, factor = (figures[name] for name in ("first_ms", "whole_s", "rtf"))
            table.add_row(
                load.kind.name,
                str(load.replicas),
                load.name,
                f"{load.rate:.2f}",
                f"{load.sound_s:.1f}",
                _shown(first, ".0f"),
                _shown(whole, ".2f"),
                _shown(factor, ".2f"),
            )
        console.print(table)


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers that are started for a deployment one after another, with each number of ``replicas`` per worker."""

    spec: EngineSpec
    served: Served
    replicas: tuple[int, ...] = (1,)

    @property
    def exact(self) -> bool:
        """Whether all workers compute in float32, so that batching does not change answers."""
        return all(worker.dtype == "float32" for worker in self.spec.workers)

    def changes(self, plan: Plan, replicas: int) -> Changes:
        """Return settings that give HTTP all slots and room for all simultaneous users. Raises BenchError."""
        limits = {"answers": 4 * max(plan.at_once), "answers_share": 1.0, "wait_s": WAIT_S}
        changes: dict[str, Any] = {f"server.limits.{name}": value for name, value in limits.items()}
        if replicas == 1:
            return changes
        if not self.spec.workers:
            raise BenchError("--replicas needs a configuration that names its workers")
        return {**changes, "workers.replicas": replicas}


def run_serve(measured: Address | Servers, plan: Plan, json_path: Path | None) -> bool:
    """Measure a running server or a deployment. Returns whether all bars were met. Raises EngineError."""
    run = Report()
    if isinstance(measured, Address):
        event_loop.run(run.measure(measured, plan))
        name, exact = measured.url, False
    else:
        name, exact = measured.spec.title, measured.exact
        for replicas in measured.replicas:
            with measured.served.running(measured.changes(plan, replicas)) as server:
                event_loop.run(run.measure(Address(server.url), plan, replicas))
    run.show(Console(emoji=False))
    return report(run.figures(exact), name, json_path, loads=[statistics_of(one) for one in run.loads])


def statistics_of(load: Load) -> dict[str, Any]:
    """Return the figures of a load; times and real-time factors are (mean, p50, p99)."""
    complete = load.complete
    return {
        "asked": load.kind.name,
        "replicas": load.replicas,
        "load": load.name,
        "answers": len(load.answers),
        "complete": len(complete),
        "answers_per_s": load.rate,
        "sound_s_per_s": load.sound_s,
        "first_ms": _spread([answer.first_s * 1000 for answer in complete]),
        "whole_s": _spread([answer.whole_s for answer in complete]),
        "rtf": _spread([answer.factor for answer in complete]),
    }


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return float(np.mean(values)), percentile(values, 50) or 0.0, percentile(values, 99) or 0.0


def _shown(spread: Spread | None, form: str) -> str:
    return "missing" if spread is None else " / ".join(format(value, form) for value in spread)


def _replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas of each stage"


def measure(asked: argparse.Namespace) -> bool:
    """Measure, print and save. Returns whether all bars were met. Raises EngineError."""
    voices = tuple(filter(None, asked.voices.split(",")))
    plan = Plan(voices, asked.at_once, asked.rate)
    if asked.url is not None:
        return run_serve(Address(asked.url, asked.key_file), plan, asked.json)
    spec = deployment(asked.config, weights=asked.weights)
    servers = Servers(spec, program.served(asked), asked.replicas)
    return run_serve(servers, plan, asked.json)


def main() -> int:
    parser = program.deployment_parser(__doc__)
    parser.add_argument("--url", help="measure a running server instead of starting one")
    parser.add_argument("--key-file", help="file with the API key of the server at --url")
    parser.add_argument("--at-once", type=program.numbers, default="1,8,16,64", help="users who ask at once")
    parser.add_argument("--rate", type=float, help="arrivals per second in the last load (default: 0.7 of the maximum)")
    parser.add_argument("--voices", default="", help="further voices, in addition to the default one")
    parser.add_argument("--replicas", type=program.numbers, default="1", help="replicas of every worker")
    asked = parser.parse_args()
    return program.status(lambda: measure(asked))


if __name__ == "__main__":
    sys.exit(main())
