"""Measure a deployment with hesitant users, long conversations, and ten times too many users.

    python -m benchmarks.endurance [-c CONFIG] [--weights DIR] [--speech FILE] [--json FILE]

`parley bench --minutes` measures minutes of full load.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median

import numpy as np

from app.bench import engines, listeners_of
from app.bench.client import END_MS, Turn, open_client
from app.bench.figures import Figure, interval, percentile, report
from app.bench.sessions import hear_out, speech
from app.bench.target import Target
from app.commands import terminal
from app.commands.deployment import deployment
from benchmarks import overload, program
from engine import SPEAKER_RATE_HZ
from engine.aio import event_loop

HESITATION_S = 0.35
"""Pause longer than the silence after which an answer is prepared, and shorter than the one that ends a turn."""

TURNS = 20
LATE = 4  # number of last turns that count as late
ASKED = ("Repeat after me: the red house.", "Repeat after me: the big train.", "Repeat after me: the old river.")
"""Turns of equal length, with answers of equal length."""


async def hesitant(target: Target, count: int) -> list[Figure]:
    """Measure last word → first sound, minus the end-of-turn silence, of users who pause in mid-sentence.

    Nothing may be heard before the turn is over: an answer to half a sentence would come ``HESITATION_S`` early.
    """
    async with open_client(target, END_MS) as client:
        words = await speech(target, client)
        half = np.zeros(round(HESITATION_S * SPEAKER_RATE_HZ), "<i2")
        turns = [await hear_out(client, np.concatenate([words, half, words])) for _ in range(count)]
    beyond = [turn.ttfa_s * 1000 - END_MS for turn in turns if turn.ttfa_s is not None]
    whole = len(beyond) == len(turns)
    early = sum(ms < 0 for ms in beyond)
    note = f"{count} turns with a pause of {HESITATION_S * 1000:.0f} ms, {early} answered too early"
    held = whole and not early
    name, p50, p95 = "last word → first sound − end silence", *(percentile(beyond, percent) for percent in (50, 95))
    return [
        Figure(name=f"{name}, p50", value=p50 if held else None, unit="ms"),
        Figure(name=f"{name}, p95", value=p95 if held else None, unit="ms", bar=20, note=note),
    ]


async def long_conversations(target: Target, count: int) -> Figure:
    """Compare the TTFA of the last turns of long conversations with that of the first turn of new ones.

    Each pair asks the same question at both ends in immediate succession (order ABBA), because the machine may slow
    down during the minute between a conversation's first and last turn.
    """
    name, pairs = f"TTFA of turn {TURNS} over turn 1", [await _both_ends(target) for _ in range(count)]
    ratios = [ratio for conversation in pairs for ratio in conversation if ratio is not None]
    if len(ratios) < count * LATE:
        return Figure(name=name, value=None, unit="", note="answers are missing")
    low, high = interval(ratios)
    note = f"median of {len(ratios)} pairs in {count} conversations; 95 %: {low:.3g} to {high:.3g}"
    return Figure(name=name, value=median(ratios), unit="", bar=1.10, note=note)


async def _both_ends(target: Target) -> list[float | None]:
    """Return the ratios of one long conversation; None for an answer without sound."""
    ratios: list[float | None] = []
    async with open_client(target) as client:
        for i in range(TURNS):
            asked, late = ASKED[i % len(ASKED)], i >= TURNS - LATE
            before = await _first(target, asked) if late and i % 2 else None
            turn = await client.typed(asked)
            if late:
                first = before or await _first(target, asked)
                ratios.append(turn.ttfa_s / first.ttfa_s if turn.ttfa_s and first.ttfa_s else None)
    return ratios


async def _first(target: Target, asked: str) -> Turn:
    """Return the first turn of a new conversation."""
    async with open_client(target) as client:
        return await client.typed(asked)


def measure(asked: argparse.Namespace) -> bool:
    """Measure, print and save. Returns whether all bars were met. Raises EngineError."""
    spec, served = deployment(asked.config, weights=asked.weights), program.served(asked)
    with terminal.waiting("speaking as fast as one thread can …"):
        listeners = listeners_of(event_loop.run(engines.real_time_factor(spec, 1)).value or 1.0)
    with terminal.waiting("users who hesitate, and long conversations …"), served.running() as server:
        figures = event_loop.run(hesitant(served.target(server), 12))
        figures.append(event_loop.run(long_conversations(served.target(server), 3)))
    return report([*figures, *overload.too_many(served, listeners)], spec.title, asked.json)


def main() -> int:
    asked = program.deployment_parser(__doc__).parse_args()
    return program.status(lambda: measure(asked))


if __name__ == "__main__":
    sys.exit(main())
