"""A deployment compared with another way to compute the same checkpoint, in one run.

    python -m benchmarks.against bare|transformers [-c CONFIG] [--weights DIR] [--quick] [--json FILE]

Each side is a process of its own and waits while the other is measured; pairs alternate in order (ABBA), and what is
compared are ratios. The bare forwards are the same stages with nothing between their steps: the least that a first
sound costs. First audio is the first samples that the client's process has, from the moment it asked.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from app.bench.figures import Figure, interval, percentile, report
from app.bench.target import BenchError
from app.commands import terminal
from app.commands.deployment import deployment
from app.ids import new_id
from benchmarks import program
from benchmarks.arrivals import poisson
from benchmarks.peers.peer import Question, Subject, Times
from engine import SPEAKER_RATE_HZ, Audio, ConfigError, Engine, EngineSpec, Message, Request, Sampling, TextPart
from engine.aio import event_loop
from engine.ipc import spawn

ANSWER = Question(text="Hello, how are you today? Tell me about the weather.", tokens=30, frames=50)  # four seconds
BARE = "bare"
AT_ONCE = (1, 2, 4, 8, 16)
LISTEN_S = 1.0  # seconds that users listen who come at random
SHORT_S = 0.025  # forwards below this are so short that the rest is judged in milliseconds


@dataclass(frozen=True, slots=True)
class Point:
    """First audio when so many ask at the same moment, and the least that their forwards take; seconds.

    The ideal would always take the same time; the distance of its own p95 from its median is the machine's unrest.
    """

    count: int
    p50_s: float
    p95_s: float
    ideal_s: float
    ideal_p95_s: float
    open_p50_s: float = 0.0
    """First audio, p50, of users who come at random, where so many listen to an answer on average."""
    open_p95_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The judged figures, and the first audio at each load."""

    figures: list[Figure]
    curve: list[Point]


class Process:
    """A peer in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process = process
        self._name = name

    def line(self) -> bytes:
        """Return its next line. Raises BenchError if it has ended instead."""
        assert self._process.stdout is not None
        found = self._process.stdout.readline()
        if not found:
            raise BenchError(f"{self._name} ended before it had answered; what it said of it is above")
        return found

    async def answer(self, question: Question) -> Times:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(await asyncio.to_thread(self.line), type=Times)


@contextmanager
def peer(name: str, spec: EngineSpec) -> Generator[Process]:
    """A peer that has loaded what the deployment serves, while the block lasts."""
    slots = max(worker.max_batch for worker in spec.workers)
    threads = max(worker.threads for worker in spec.workers)
    if spec.model is None:
        raise ConfigError("a comparison needs a configuration that names a model")
    subject = Subject(model=spec.model, weights=spec.weights, threads=threads, slots=slots, options=dict(spec.options))
    process = subprocess.Popen(
        [*spawn.PYTHON, "-m", "benchmarks.peers", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(subject) + b"\n")
        process.stdin.flush()
        found = Process(process, name)
        found.line()
        yield found
    finally:
        process.kill()
        process.communicate()


async def compare(spec: EngineSpec, name: str, pairs: int) -> Comparison:
    """Measure a deployment against its own bare forwards, and a peer that is something else. Raises EngineError."""
    with terminal.waiting(f"loading the model and {name} …"), ExitStack() as stack:
        other = None if name == BARE else stack.enter_context(peer(name, spec))
        bare = stack.enter_context(peer(BARE, spec))
        async with Engine(spec) as engine:
            for one in (bare.answer, _asker(engine), *([other.answer] if other else [])):
                await one(ANSWER)  # the first of each also warms up
            event_loop.settle()  # as a server does
            figures = [] if other is None else _beside(name, await _paired(_asker(engine), other.answer, ANSWER, pairs))
            found = await _measured(engine, bare, pairs)
            return Comparison([*figures, *found.figures], found.curve)


async def _measured(engine: Engine, bare: Process, pairs: int) -> Comparison:
    """P1 and P3: what comes on top of the bare forwards, alone and among others."""
    ours = _asker(engine)
    short = msgspec.structs.replace(ANSWER, frames=4)
    unrest = await _paired(bare.answer, bare.answer, short, max(pairs, 30))
    figures = _overhead(await _paired(ours, bare.answer, short, max(pairs, 30)), unrest)
    curve: list[Point] = []
    slots = max(worker.max_batch for worker in engine.spec.workers)
    for count in (count for count in AT_ONCE if count <= slots):
        rounds = await _paired(ours, bare.answer, msgspec.structs.replace(short, count=count), max(6, pairs))
        asked = max(pairs, 3 * count)
        came = await _at_random(engine, count, asked)
        curve.append(_point(count, rounds, came))
        figures += _crowd(curve[-1], len(rounds), asked)
    return Comparison(figures, curve)


Ask = Callable[[Question], Any]
Pair = tuple[Times, Times]


async def _paired(ours: Ask, theirs: Ask, question: Question, pairs: int) -> list[Pair]:
    """Ask ours and theirs in turn, in the order ABBA."""
    found: list[Pair] = []
    for _, ours_first in zip(range(pairs), itertools.cycle((True, False)), strict=False):
        if ours_first:
            found.append((await ours(question), await theirs(question)))
        else:
            other = await theirs(question)
            found.append((await ours(question), other))
    return found


def _asker(engine: Engine) -> Ask:
    async def answer(question: Question) -> Times:
        begun_s = time.perf_counter()
        found = await asyncio.gather(*(_one(engine, question, begun_s) for _ in range(question.count)))
        first_s, _, frames = zip(*found, strict=True)
        return Times(first_s=first_s, whole_s=max(end_s for _, end_s, _ in found), frames=min(frames))

    return answer


async def _one(engine: Engine, question: Question, begun_s: float) -> tuple[float, float, int]:
    """Return when the first samples of an answer were here and when the last, and how many frames they make."""
    id = new_id("bench")
    request = Request(
        id=id,
        session=id,
        messages=(Message("user", (TextPart(question.text),)),),
        sampling=Sampling(greedy=True),
        max_text_tokens=question.tokens,
        max_audio_s=question.frames * engine.model.frame_s,
    )
    first_s, samples = None, 0
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            if not isinstance(chunk, Audio):
                continue
            if first_s is None:
                first_s = time.perf_counter() - begun_s
            samples += len(chunk.wave)
    if first_s is None:
        raise BenchError("an answer had no sound, so there is nothing to compare; try another checkpoint or text")
    return first_s, time.perf_counter() - begun_s, round(samples / SPEAKER_RATE_HZ / engine.model.frame_s)


def _beside(name: str, pairs: Sequence[Pair]) -> list[Figure]:
    """P2: first audio, and the whole answer, over the peer's."""
    ours, theirs = zip(*pairs, strict=True)
    frames = {times.frames for times in (*ours, *theirs)}
    note = f"{median(t.first_s[0] for t in ours) * 1e3:.0f} ms to {median(t.first_s[0] for t in theirs) * 1e3:.0f} ms"
    alike = len(frames) == 1
    first = [one.first_s[0] / other.first_s[0] for one, other in pairs]
    whole = [one.whole_s / other.whole_s for one, other in pairs]
    lengths = f"{len(pairs)} answers of {frames.pop()} frames" if alike else f"answers of {sorted(frames)} frames"
    return [
        _ratio(f"first audio over {name}'s", first if alike else [], 1 / 25, f"{note}, {lengths}"),
        _ratio(f"whole answer over {name}'s", whole if alike else [], 1.0, lengths),
    ]


def _overhead(pairs: Sequence[Pair], unrest: Sequence[Pair]) -> list[Figure]:
    """P1: what comes on top of the bare forwards: milliseconds where they are short, else a ratio.

    Beside it the same of ``unrest``, the bare forwards against themselves: that is the machine's part of it.
    """
    bare_s = median(other.first_s[0] for _, other in pairs)
    short = bare_s < SHORT_S
    name, unit, bars = ("beyond", "ms", (3.0, 3.0)) if short else ("over", "", (1.15, 1.3))
    ours, theirs = ([_more(pair, short) for pair in found] for found in (pairs, unrest))
    note = f"{len(pairs)} pairs; the bare forwards take {bare_s * 1e3:.1f} ms"
    return [
        Figure(
            name=f"first audio {name} the bare forwards, p{percent}",
            value=percentile(ours, percent),
            unit=unit,
            bar=bar,
            note=f"{note}, of themselves {percentile(theirs, percent) or 0.0:.2f} {unit}",
        )
        for percent, bar in zip((50, 95), bars, strict=True)
    ]


def _more(pair: Pair, short: bool) -> float:
    """The first of two first sounds against the second: milliseconds more, or how many times as long."""
    one_s, other_s = (times.first_s[0] for times in pair)
    return (one_s - other_s) * 1e3 if short else one_s / other_s


async def _at_random(engine: Engine, listeners: int, count: int) -> list[float]:
    """First audio of users who come at random and listen for ``LISTEN_S``: by Little, so many listen on average."""
    frames = round(LISTEN_S / engine.model.frame_s)
    question = msgspec.structs.replace(ANSWER, frames=frames)

    async def one() -> float:
        return (await _one(engine, question, time.perf_counter()))[0]

    return await poisson(one, listeners / LISTEN_S, count)


def _point(count: int, pairs: Sequence[Pair], came_s: Sequence[float] = ()) -> Point:
    first_s = [value for one, _ in pairs for value in one.first_s]
    ideal_s = [max(other.first_s) for _, other in pairs]
    at_once, at_random = ((percentile(times, 50) or 0.0, percentile(times, 95) or 0.0) for times in (first_s, came_s))
    return Point(count, *at_once, median(ideal_s), percentile(ideal_s, 95) or 0.0, *at_random)


def _crowd(point: Point, rounds: int, asked: int) -> list[Figure]:
    """P3: the p95 of first audio over the ideal chain, all as one batch, and over its p95."""
    note = f"{rounds} rounds, p95 {point.p95_s * 1e3:.1f} ms; the ideal chain takes {point.ideal_s * 1e3:.1f} ms"
    alike = f"p50 {point.p50_s * 1e3:.1f} ms; the ideal's p95 is {point.ideal_p95_s * 1e3:.1f} ms"
    came = f"{asked} came, p95 {point.open_p95_s * 1e3:.0f} ms"
    return [
        Figure(
            name=f"first audio of {point.count} at once over the ideal",
            value=point.p95_s / point.ideal_s,
            unit="",
            bar=1.25,
            note=note,
        ),
        Figure(
            name=f"{point.count} at once over the ideal's p95",
            value=point.p95_s / point.ideal_p95_s,
            unit="",
            bar=1.25,
            note=alike,
        ),
        Figure(
            name=f"{point.count} listening on average (Poisson) over it",
            value=point.open_p95_s / point.ideal_s,
            unit="",
            bar=1.25,
            note=came,
        ),
    ]


def _ratio(name: str, values: Sequence[float], bar: float, note: str) -> Figure:
    """The median of ratios with its 95 % interval (bootstrap); none where the two sides did not do the same."""
    if not values:
        return Figure(name=name, value=None, unit="", bar=bar, note=f"not the same: {note}")
    low, high = interval(values)
    return Figure(name=name, value=median(values), unit="", bar=bar, note=f"{note}; 95 %: {low:.3g} to {high:.3g}")


def measure(asked: argparse.Namespace) -> bool:
    """Compare, print and save; return whether every bar was held. Raises EngineError."""
    spec = deployment(asked.config, weights=asked.weights)
    found = event_loop.run(compare(spec, asked.peer, pairs=4 if asked.quick else 30))
    return report(found.figures, spec.title, asked.json, curve=found.curve)


def main() -> int:
    parser = program.deployment_parser(__doc__)
    parser.add_argument("peer", choices=(BARE, "transformers"), help="what to compare with")
    parser.add_argument("--quick", action="store_true", help="measure with fewer repetitions")
    asked = parser.parse_args()
    return program.status(lambda: measure(asked))


if __name__ == "__main__":
    sys.exit(main())
