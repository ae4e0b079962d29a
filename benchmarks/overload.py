"""Figures of an overloaded server: more users than fit (P10), and a control without growing chunks (P5).

Users arrive at random (Poisson), ten times as many as fit; those without a free slot leave. Admitted users must hear
everything without a gap, and the others must be refused immediately.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.bench.client import Turn, open_client
from app.bench.figures import Figure, percentile
from app.bench.sessions import Clients, full_load, talk, underruns
from app.bench.subject import Served
from app.bench.target import BenchError, Target
from app.commands import terminal
from benchmarks.arrivals import poisson
from engine.aio import event_loop

TIMES = 10
VISIT_S = 10.0
"""Seconds that an admitted user stays."""

CROWD_S = 30.0
"""Duration of the overload in seconds."""

REFUSED_MS = 50.0
FIXED = {"chunks.first": 4, "chunks.growth": 25, "chunks.steady": 25, "chunks.hurry": False}
"""A fixed chunk schedule, common elsewhere: four codec frames, then twenty-five at a time, regardless of underruns."""


@dataclass(slots=True)
class Visits:
    """Counts of admitted and refused users."""

    turns: list[Turn] = field(default_factory=list[Turn])
    admitted: int = 0
    refused_ms: list[float] = field(default_factory=list[float])
    took: Clients = field(default_factory=Clients)


def too_many(served: Served, listeners: int) -> list[Figure]:
    """Measure an overload, and a control with another chunk schedule, each on its own server."""
    room = {"server.limits.sessions": listeners}
    with terminal.waiting(f"{TIMES} times {listeners} users …"), served.running(room) as server:
        figures = event_loop.run(overload(served.target(server), listeners, CROWD_S))
    with terminal.waiting("chunks of 4, 25, 25 …"), served.running(FIXED) as server:
        return [*figures, *control(event_loop.run(full_load(served.target(server), listeners, CROWD_S)))]


async def overload(target: Target, room: int, seconds: float) -> list[Figure]:
    """Run ten times as many users as there is ``room`` for."""
    rate, visits = TIMES * room / VISIT_S, Visits()
    await poisson(lambda: _visit(target, visits), rate, int(rate * seconds))
    return judged(visits, room, seconds)


def judged(visits: Visits, room: int, seconds: float) -> list[Figure]:
    """Return the figures; without value if nobody or everybody was admitted."""
    came = visits.admitted + len(visits.refused_ms)
    name = f"{TIMES} times as many users as {room} requests"
    note = f"{came} came in {seconds:.0f} s, {visits.admitted} were let in"
    shown = visits.admitted > 0 and len(visits.refused_ms) >= came / 2
    late = percentile(visits.refused_ms, 95) if shown else None
    return [
        *underruns(f"{name}, those let in", visits.turns if shown else [Turn(0.0)], visits.took),
        Figure(name=f"{name}: a refusal, p95", value=late, unit="ms", bar=REFUSED_MS, note=note),
    ]


async def _visit(target: Target, visits: Visits) -> None:
    begun_s = time.monotonic()
    try:
        async with open_client(target) as client:
            visits.admitted += 1
            visits.turns += await talk(client, visits.admitted, time.monotonic() + VISIT_S)
    except BenchError:
        visits.refused_ms.append((time.monotonic() - begun_s) * 1000)


def control(figures: Sequence[Figure]) -> list[Figure]:
    """Return the control figure: with chunks of 4, 25, 25 … frames, players must run dry; otherwise the bar shows
    nothing.
    """
    (one,) = figures
    return [Figure(name="the same with chunks of 4, 25, 25 … frames", value=one.value, unit="", bar=1, control=True)]
