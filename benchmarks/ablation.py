"""Measure how much time each latency technique saves, by the same turns with and without it.

    python -m benchmarks.ablation [-c CONFIG] [--weights DIR] [--speech FILE] [--quick] [--json FILE]

Each pair is two servers that differ in one line of their configuration. Requests alternate between them in the order
ABBA, and the result is the median of the differences.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from app.bench import sessions
from app.bench.client import END_MS, Turn, open_client
from app.bench.figures import Figure, interval, report
from app.bench.subject import Served
from app.bench.target import BenchError, Target
from app.commands import terminal
from app.commands.deployment import deployment
from benchmarks import program
from engine.aio.event_loop import run
from engine.ipc import spawn

Measure = Callable[[Target], Awaitable[float]]
"""Measures one turn of a server: milliseconds to its first audible sound."""

EARLIER = 8  # turns of a conversation before the measured one
SILENT_IN_TURN = 2  # retries after a silent answer
OTHERS = 6  # other listeners who are being answered
LONG = "Repeat after me: " + "the blue car is late and the red house is big, " * 3


async def spoken(target: Target) -> float:
    """Measure a spoken turn, without the silence that ends it."""
    async with open_client(target, END_MS) as client:
        words = await sessions.speech(target, client)
        async with client.cutting():
            return _ms(await sessions.speak(client, words)) - END_MS


async def typed(target: Target) -> float:
    async with open_client(target) as client:
        await client.begun(sessions.PROMPTS[0])
        return _ms(await client.begun(sessions.PROMPTS[1]))


async def late_in_a_conversation(target: Target) -> float:
    """Measure a typed turn after several others."""
    async with open_client(target) as client:
        for i in range(EARLIER):
            await client.begun(sessions.PROMPTS[i % len(sessions.PROMPTS)])
        return _ms(await client.begun(sessions.PROMPTS[1]))


async def beside_others(target: Target) -> float:
    """Measure a typed turn while other users, who asked just before, are being answered."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(target)) for _ in range(OTHERS + 1)]
        await asyncio.gather(*(client.begun(sessions.PROMPTS[0]) for client in clients))
        others = [asyncio.create_task(client.typed(LONG), name="another's answer") for client in clients[1:]]
        try:
            await asyncio.sleep(0.03)
            return _ms(await clients[0].begun(sessions.PROMPTS[1]))
        finally:
            for other in others:
                other.cancel()
            await asyncio.wait(others)


@dataclass(frozen=True, slots=True)
class Technique:
    """A technique: its measurement, the configuration ``without`` it, and changes of ``both`` sides.

    If one technique would hide the absence of another, it is disabled on both sides.
    """

    name: str
    measure: Measure
    without: Mapping[str, Any]
    both: Mapping[str, Any] = field(default_factory=dict[str, Any])


TECHNIQUES = (
    Technique("answers begun in a pause", spoken, {"server.turns.guess_ms": 0}),
    Technique("listening while the user speaks", spoken, {"server.turns.ahead": False}, {"server.turns.guess_ms": 0}),
    Technique("prefixes that are kept", late_in_a_conversation, {"options.remember_mb": 0}),
    Technique("a first chunk of one frame", typed, {"chunks.first": 4}),
    Technique("the most urgent first", beside_others, {"workers.schedule": "arrival"}),
)


def ablate(served: Served, pairs: int) -> list[Figure]:
    """Return a figure for each technique. Raises EngineError."""
    figures: list[Figure] = []
    for technique in TECHNIQUES:
        with terminal.waiting(f"with and without {technique.name} …"):
            figures.append(_pair(served, technique, pairs))
    return [*figures, collection()]


def _pair(served: Served, technique: Technique, pairs: int) -> Figure:
    with ExitStack() as stack:
        sides = technique.both, {**technique.both, **technique.without}
        servers = [stack.enter_context(served.running(changes)) for changes in sides]
        with_, without = map(served.target, servers)
        return run(_compared(technique, with_, without, pairs))


async def _compared(technique: Technique, with_: Target, without: Target, pairs: int) -> Figure:
    """Compare two servers. The first turn of each is a warm-up."""
    again = Again(technique.measure)
    for side in (with_, without):
        await again.measure(side)
    found: list[tuple[float, float]] = []
    for i in range(pairs):
        sides = (with_, without) if i % 2 == 0 else (without, with_)
        times = {id(side): await again.measure(side) for side in sides}
        found.append((times[id(with_)], times[id(without)]))
    figure = saved(technique.name, found)
    return replace(figure, note=f"{figure.note}; {again.silent} silent") if again.silent else figure


@dataclass(slots=True)
class Again:
    """Repeats a measurement if an answer is complete but silent.

    Random weights may end an answer with its first token; trained ones should not. So silent answers are counted, and
    several in a row are an error.
    """

    once: Measure
    silent: int = 0

    async def measure(self, target: Target) -> float:
        for _ in range(SILENT_IN_TURN):
            with suppress(SilentAnswer):
                return await self.once(target)
            self.silent += 1
        return await self.once(target)


class SilentAnswer(BenchError):
    """A complete answer without audible sound."""


def saved(name: str, pairs: list[tuple[float, float]]) -> Figure:
    """Return the time saved by a technique, from pairs (with, without) in milliseconds."""
    low, high = interval([without - with_ for with_, without in pairs])
    medians = [median(side) for side in zip(*pairs, strict=True)]
    note = f"{medians[0]:.0f} ms with, {medians[1]:.0f} without; 95 %: {low:.1f} to {high:.1f}; {len(pairs)} pairs"
    value = median(without - with_ for with_, without in pairs)
    return Figure(name=f"saved by {name}", value=value, unit="ms", note=note)


def collection(processes: int = 5) -> Figure:
    """Measure how long a garbage collection stops the server, with and without freezing loaded objects."""
    code = (
        "import gc, time, app.server, engine.worker.models.nano\n"
        "def took():\n a = time.perf_counter(); gc.collect(); return (time.perf_counter() - a) * 1000\n"
        "gc.collect(); without = took(); gc.freeze(); print(took(), without)"
    )
    command = [*spawn.PYTHON, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(processes)]
    return saved("keeping what is loaded out of collections", [tuple(map(float, run.stdout.split())) for run in runs])  # type: ignore[misc]


def _ms(turn: Turn) -> float:
    if turn.ttfa_s is not None:
        return turn.ttfa_s * 1000
    if turn.status == "completed":
        raise SilentAnswer("answers were complete and had no sound, so there is nothing to compare")
    raise BenchError(f"an answer had no sound ({turn.status}), so there is nothing to compare")


def measure(asked: argparse.Namespace) -> bool:
    """Measure, print and save. Returns whether all bars were met. Raises EngineError."""
    figures = ablate(program.served(asked), pairs=6 if asked.quick else 30)
    return report(figures, deployment(asked.config, weights=asked.weights).title, asked.json)


def main() -> int:
    parser = program.deployment_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="measure with fewer repetitions")
    asked = parser.parse_args()
    return program.status(lambda: measure(asked))


if __name__ == "__main__":
    sys.exit(main())
