"""Figures of a crowd: users beyond a server's room (P10), and what a schedule without a ramp would do to those it has
(P5).

Users come at random (Poisson), ten times as many as could be served, and whoever finds no room goes. Those who were let
in must hear everything without a gap, and the others must be told at once.
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
"""Seconds that a user stays whom the server has let in."""

CROWD_S = 30.0
"""Seconds for which too many users come."""

REFUSED_MS = 50.0
FIXED = {"chunks.first": 4, "chunks.growth": 25, "chunks.steady": 25, "chunks.hurry": False}
"""The schedule that others have: four codec frames, then twenty-five at a time, whoever runs dry meanwhile."""


@dataclass(slots=True)
class Visits:
    """Counts of what became of the users who came, from now on."""

    turns: list[Turn] = field(default_factory=list[Turn])
    admitted: int = 0
    refused_ms: list[float] = field(default_factory=list[float])
    took: Clients = field(default_factory=Clients)


def too_many(served: Served, listeners: int) -> list[Figure]:
    """Measure a crowd, and another schedule of chunks as control: each on a server of its own."""
    room = {"server.limits.sessions": listeners}
    with terminal.waiting(f"{TIMES} times {listeners} users …"), served.running(room) as server:
        figures = event_loop.run(overload(served.target(server), listeners, CROWD_S))
    with terminal.waiting("chunks of 4, 25, 25 …"), served.running(FIXED) as server:
        return [*figures, *control(event_loop.run(full_load(served.target(server), listeners, CROWD_S)))]


async def overload(target: Target, room: int, seconds: float) -> list[Figure]:
    """Ten times as many users as there is ``room`` for, for so long."""
    rate, visits = TIMES * room / VISIT_S, Visits()
    await poisson(lambda: _visit(target, visits), rate, int(rate * seconds))
    return judged(visits, room, seconds)


def judged(visits: Visits, room: int, seconds: float) -> list[Figure]:
    """Void where nobody was let in, or everybody: then nothing was shown."""
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
    """The same listeners with chunks of 4, 25, 25 … frames: their players must run dry, or the bar shows nothing."""
    (one,) = figures
    return [Figure(name="the same with chunks of 4, 25, 25 … frames", value=one.value, unit="", bar=1, control=True)]
