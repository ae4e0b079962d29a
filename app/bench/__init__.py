"""`parley bench`: figures of a deployment on this machine, each with its target.

Measurements run one after another, so that none disturbs the next. TTFA is the time from the trigger to the first
audible sound, by the client's clock; a missing sound is a failure. An underrun is a moment in which a player without a
buffer runs dry.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from app.bench import engines, sessions
from app.bench.figures import Figure, report
from app.bench.subject import Served
from app.bench.target import Target
from app.commands import terminal
from app.settings import Limits
from engine import EngineSpec
from engine.aio import event_loop

LOAD = 0.8
"""Fraction of the TTS model's time that full load takes."""

REST_S = 1.0  # after the start, before memory is measured


@contextmanager
def stoppable() -> Generator[None]:
    """Exit on SIGTERM within the block, so that servers and clients started in it end too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_bench(
    spec: EngineSpec, served: Served, target: Target | None, minutes: float | None, json_path: Path | None
) -> bool:
    """Measure, print and save; return whether every bar was held. Raises EngineError.

    With a ``target``, only what its clients see is measured; without one, a server is started for the deployment.
    ``minutes`` of full load come last, after more repetitions; None is the quick bench.
    """
    scale = 1 if minutes is None else 4
    figures = _of_server(target, scale) if target else _of_all(spec, served, scale, minutes)
    return report(figures, target.url if target else spec.title, json_path)


def _of_all(spec: EngineSpec, served: Served, scale: int, minutes: float | None) -> list[Figure]:
    alone = _of_engine(spec, scale)
    listeners = listeners_of(alone[-1].value or 1.0)
    room = {"server.limits.sessions": listeners} if listeners > Limits().sessions else None
    with terminal.waiting("starting a server …") as status, served.running(room) as server:
        time.sleep(REST_S)
        figures = [
            *alone,
            Figure(name="start to green", value=server.green_s, unit="s", bar=10),
            Figure(name="memory at rest, all processes", value=server.rss_gb(), unit="GB", bar=1.0),
        ]
        status.stop()
        target = served.target(server)
        figures += _of_server(target, scale)
        if minutes is not None:
            with terminal.waiting(f"{listeners} listeners for {minutes:g} min …"):
                figures += event_loop.run(sessions.full_load(target, listeners, minutes * 60))
    return figures


def listeners_of(factor: float) -> int:
    """Return how many listeners use ``LOAD`` of the TTS model's time at this real-time factor; at least one."""
    return max(1, int(LOAD / factor))


def _of_engine(spec: EngineSpec, scale: int) -> list[Figure]:
    with terminal.waiting("hand-overs between stages …"):
        figures = engines.handovers(scale)
    with terminal.waiting("speaking as fast as one thread can …"):
        return [*figures, event_loop.run(engines.real_time_factor(spec, scale))]


def _of_server(target: Target, scale: int) -> list[Figure]:
    with terminal.waiting("typed turns …"):
        figures = event_loop.run(sessions.typed(target, 8 * scale))
    with terminal.waiting("eight typed answers at once …"):
        figures += event_loop.run(sessions.typed_at_once(target, scale))
    with terminal.waiting("eight voice sessions …"):
        return [*figures, *event_loop.run(sessions.voices(target, 2 * scale))]
