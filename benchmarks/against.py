"""Compare a deployment with another implementation of the same checkpoint, in one run.

    python -m benchmarks.against bare|transformers [-c CONFIG] [--weights DIR] [--quick] [--json FILE]

Each side is a separate process that waits while the other one is measured. Pairs alternate in order (ABBA), and ratios
are compared. ``bare`` runs the same stages with nothing between their steps, which gives the lower bound for a first
sound. First audio is the time from the request until the client process has the first samples.
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
LISTEN_S = 1.0  # seconds that users listen who arrive at random
SHORT_S = 0.025  # below this duration of the forward passes, overhead is compared in milliseconds


@dataclass(frozen=True, slots=True)
class Point:
    """First audio when ``count`` users ask at the same moment, and the time of their bare forward passes, in seconds.

    Bare forward passes always do the same work, so the distance of their p95 from their median shows the machine's
    noise.
    """

    count: int
    p50_s: float
    p95_s: float
    ideal_s: float
    ideal_p95_s: float
    open_p50_s: float = 0.0
    """First audio, p50, of users who arrive at random, with ``count`` concurrent listeners on average."""
    open_p95_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures, and the first audio at each load."""

    figures: list[Figure]
    curve: list[Point]


class Process:
    """A peer in a separate process."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process = process
        self._name = name

    def line(self) -> bytes:
        """Return its next output line. Raises BenchError if it has ended."""
        assert self._process.stdout is not None
        found = self._process.stdout.readline()
        if not found:
            raise BenchError(f"{self._name} ended before it answered; see its output above")
        return found

    async def answer(self, question: Question) -> Times:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(await asyncio.to_thread(self.line), type=Times)


@contextmanager
def peer(name: str, spec: EngineSpec) -> Generator[Process]:
    """Start a peer that loads the deployment's model, for the duration of the block."""
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
    """Measure a deployment against its bare forward passes and another peer. Raises EngineError."""
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
    """Measure P1 and P3: the overhead on top of the bare forward passes, alone and under load."""
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
    """Ask both sides alternately, in the order ABBA."""
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
    """Return the times of an answer's first and last samples, and its number of frames."""
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
    """Return P2: first audio and whole answer relative to the peer's."""
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
    """Return P1: the overhead on top of the bare forward passes, in milliseconds if these are short, otherwise as a
    ratio.

    The note shows the same value for ``unrest``, the bare forward passes compared with themselves: the machine's noise.
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
    """Return the difference of two first-audio times in milliseconds, or their ratio."""
    one_s, other_s = (times.first_s[0] for times in pair)
    return (one_s - other_s) * 1e3 if short else one_s / other_s


async def _at_random(engine: Engine, listeners: int, count: int) -> list[float]:
    """Return the first audio of users who arrive at random and listen for LISTEN_S; by Little's law, ``listeners`` on
    average.
    """
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
    """Return P3: the p95 of first audio relative to the ideal (all as one batch), and relative to its p95."""
    rows = (
        (
            f"first audio of {point.count} at once over the ideal",
            point.p95_s / point.ideal_s,
            f"{rounds} rounds, p95 {point.p95_s * 1e3:.1f} ms; the ideal chain takes {point.ideal_s * 1e3:.1f} ms",
        ),
        (
            f"{point.count} at once over the ideal's p95",
            point.p95_s / point.ideal_p95_s,
            f"p50 {point.p50_s * 1e3:.1f} ms; the ideal's p95 is {point.ideal_p95_s * 1e3:.1f} ms",
        ),
        (
            f"{point.count} listening on average (Poisson) over it",
            point.open_p95_s / point.ideal_s,
            f"{asked} came, p95 {point.open_p95_s * 1e3:.0f} ms",
        ),
    )
    return [Figure(name=name, value=value, unit="", bar=1.25, note=note) for name, value, note in rows]


def _ratio(name: str, values: Sequence[float], bar: float, note: str) -> Figure:
    """Return the median of ratios with its 95 % interval (bootstrap); no value if the two sides did different work."""
    if not values:
        return Figure(name=name, value=None, unit="", bar=bar, note=f"not the same: {note}")
    low, high = interval(values)
    return Figure(name=name, value=median(values), unit="", bar=bar, note=f"{note}; 95 %: {low:.3g} to {high:.3g}")


def measure(asked: argparse.Namespace) -> bool:
    """Compare, print and save. Returns whether all bars were met. Raises EngineError."""
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
