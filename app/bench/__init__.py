"""`parley bench`: what the README's figures mean on this machine, each with its bar.

Runs one measurement after another, so that none disturbs the next. Definitions: TTFA runs from the trigger to the
first audible sound in the client's clock, and a missing sound is a failure; an underrun is a player without prebuffer
that runs dry.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from app.bench import ablation, against, endurance, engines, overload, plot, sessions, voice_answers
from app.bench.figures import Figure, save, show
from app.bench.subject import Served
from app.bench.target import Target
from app.commands import terminal
from app.settings import Limits
from engine import EngineSpec, loop

LOAD = 0.8
"""The share of the talker's time that full load takes: so many listeners are spoken to at once."""

CROWD_S = 30.0
"""Seconds for which too many users come."""

REST_S = 1.0  # after the start, before the memory is read


@contextmanager
def stoppable() -> Generator[None]:
    """Have SIGTERM end the block as an exit would: so that servers and peers that were started in it end, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_bench(
    spec: EngineSpec, served: Served, target: Target | None, minutes: float | None, json_path: Path | None
) -> bool:
    """Measure, print and save; return whether every bar was held. Raises EngineError.

    With a ``target``, the bench measures what its clients see; without one, it starts a server and measures all of
    that. ``minutes`` of full load come last, after more repetitions and longer conversations; None is the quick bench.
    """
    scale = 1 if minutes is None else 4
    figures = _of_server(target, scale) if target else _of_all(spec, served, scale, minutes)
    show(figures, Console(emoji=False))
    if json_path is not None:
        save(figures, target.url if target else spec.title, json_path)
        terminal.say(f"the figures are in {json_path}")
    return all(figure.passed for figure in figures)


def run_against(spec: EngineSpec, name: str, quick: bool, json_path: Path | None, plot_path: Path | None) -> bool:
    """Measure a deployment against a peer on the same weights; whether every bar was held. Raises EngineError."""
    with terminal.waiting("hand-overs between stages …"):
        figures = engines.handovers(1 if quick else 4)
    found = loop.run(against.compare(spec, name, pairs=4 if quick else 30))
    figures = [*found.figures, *figures]
    show(figures, Console(emoji=False))
    if json_path is not None:
        save(figures, spec.title, json_path, curve=found.curve)
        terminal.say(f"the figures are in {json_path}")
    if plot_path is not None:
        plot.draw(found.curve, f"{spec.title}: time to first audio", plot_path)
        terminal.say(f"the plot is in {plot_path}")
    return all(figure.passed for figure in figures)


def run_voice_answers(served: Served, target: Target | None, count: int, record: Path, json_path: Path | None) -> bool:
    """Speak until ``record`` holds ``count`` voice answers; whether all of them were complete. Raises EngineError."""
    if target is not None:
        figures = loop.run(voice_answers.voice_answers(target, count, record))
    else:
        with served.running() as server:
            figures = loop.run(voice_answers.voice_answers(served.target(server), count, record))
    show(figures, Console(emoji=False))
    if json_path is not None:
        save(figures, target.url if target else served.config or "nano", json_path)
        terminal.say(f"the figures are in {json_path}")
    return all(figure.passed for figure in figures)


def run_ablation(spec: EngineSpec, served: Served, quick: bool, json_path: Path | None) -> bool:
    """Measure what each technique saves on this machine, with it and without it in one run. Raises EngineError."""
    figures = ablation.ablate(served, pairs=6 if quick else 30)
    show(figures, Console(emoji=False))
    if json_path is not None:
        save(figures, spec.title, json_path)
        terminal.say(f"the figures are in {json_path}")
    return all(figure.passed for figure in figures)


def _of_all(spec: EngineSpec, served: Served, scale: int, minutes: float | None) -> list[Figure]:
    alone = _of_engine(spec, scale)
    factor = alone[-1].value
    listeners = listeners_of(factor or 1.0)
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
        if minutes is not None and factor is not None:
            figures += _of_endurance(target, listeners, minutes)
    if minutes is not None and factor is not None:
        figures += _of_too_many(served, listeners)
    return figures


def listeners_of(factor: float) -> int:
    """Return how many listeners fill so much of a voice's time: one at least, however slow it is."""
    return max(1, int(LOAD / factor))


def _of_too_many(served: Served, listeners: int) -> list[Figure]:
    """P10; and of P5, what another schedule would do: each on a server of its own."""
    room = {"server.limits.sessions": listeners}
    with (
        terminal.waiting(f"{overload.TIMES} times {listeners} users …"),
        served.running(room) as server,
    ):
        figures = loop.run(overload.overload(served.target(server), listeners, CROWD_S))
    fixed = overload.FIXED
    with terminal.waiting("chunks of 4, 25, 25 …"), served.running(fixed) as server:
        dry = loop.run(endurance.full_load(served.target(server), listeners, CROWD_S))
    return [*figures, *overload.control(dry)]


def _of_endurance(target: Target, listeners: int, minutes: float) -> list[Figure]:
    with terminal.waiting("users who hesitate …"):
        figures = loop.run(endurance.hesitant(target, 12))
    with terminal.waiting("long conversations …"):
        figures.append(loop.run(endurance.long_conversations(target, 3)))
    with terminal.waiting(f"{listeners} listeners for {minutes:g} min …"):
        return [*figures, *loop.run(endurance.full_load(target, listeners, minutes * 60))]


def _of_engine(spec: EngineSpec, scale: int) -> list[Figure]:
    with terminal.waiting("hand-overs between stages …"):
        figures = engines.handovers(scale)
    with terminal.waiting("speaking as fast as one thread can …"):
        return [*figures, loop.run(engines.real_time_factor(spec, scale))]


def _of_server(target: Target, scale: int) -> list[Figure]:
    with terminal.waiting("typed turns …"):
        figures = loop.run(sessions.typed(target, 8 * scale))
    with terminal.waiting("eight typed answers at once …"):
        figures += loop.run(sessions.typed_at_once(target, scale))
    with terminal.waiting("eight voice sessions …"):
        return [*figures, *loop.run(sessions.voices(target, 2 * scale))]
