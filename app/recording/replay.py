"""Runs a recorded session again: the client's events at their times, a fresh session, and an engine of this process."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.realtime.inference_thread import InferenceThread
from app.realtime.input.echo_canceller import echo_canceller
from app.realtime.input.end_of_turn_choice import EndOfTurnChoice
from app.realtime.input.turn_detector import Silero
from app.realtime.ports import EndOfTurnModel, Vad
from app.realtime.protocol import Received, ServerEvent
from app.realtime.protocol.dialect import REALTIME
from app.realtime.session import Session
from app.realtime.session_context import SessionContext
from app.recording.engine_thread import EngineThread, in_process
from app.recording.file import RecordedSession
from app.recording.names import Names
from app.recording.replayed_engine import ReplayedEngine
from app.recording.virtual_loop import VirtualLoop
from app.settings import settings_of
from app.telemetry import Metrics
from engine import EngineSpec, parse_config
from engine.core import Pcm

JUDGED_S = 0.03
"""Time of the end-of-turn model for a pause that the recording lacks, in seconds."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    events: list[dict[str, Any]]
    """The server's events."""
    took_s: float
    """Real seconds that the session took, without the start of the engine."""


def replay(recorded: RecordedSession, spec: EngineSpec | None = None, vad: Callable[[], Vad] = Silero) -> Replayed:
    """Replay a session with a deployment; by default its own.

    Raises:
        EngineError: The deployment does not start.
        Refusal: It does not accept the session's initial settings.
    """
    engine = ReplayedEngine(recorded.requests, interims=spec is None)
    after_s = recorded.end_s + 0.001  # a timer that had no effect before the end has none in the replay
    loop = VirtualLoop([*(event.at_s for event in recorded.server), after_s] if spec is None else (), engine.holds)
    spec = spec or parse_config(json.dumps(recorded.head["configuration"]))
    engine.thread = EngineThread(in_process(spec), lambda: _wake(loop))
    try:
        with engine.thread.running():
            began_s = time.monotonic()
            run = _Run(recorded, _context(recorded, spec, engine, loop, vad), loop)
            events = loop.run_until_complete(run.serve())
            return Replayed(events, time.monotonic() - began_s)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _wake(loop: VirtualLoop) -> None:
    loop.call_soon_threadsafe(lambda: None)


class _Run:
    """One replay in progress."""

    def __init__(self, recorded: RecordedSession, context: SessionContext, loop: VirtualLoop) -> None:
        self._recorded = recorded
        self._loop = loop
        self._events: list[dict[str, Any]] = []
        self._names = Names()
        self._recorded_names = Names()
        self._told = 0
        self._context = context

    async def serve(self) -> list[dict[str, Any]]:
        """Run the session to its recorded end, and return its events."""
        opening = self._recorded.head.get("opening", {})
        session = Session(self._context, self._emit, opening.get("model", ""), opening.get("settings"))
        try:
            await session.run(self._received())
        finally:
            await self._context.decoding.close()
        return self._events

    def _emit(self, event: ServerEvent) -> None:
        for text in REALTIME.encode(event):
            found = json.loads(text)
            self._names.labelled(found)
            self._events.append(found)

    async def _received(self) -> AsyncGenerator[Received]:
        for event in self._recorded.client:
            await self._loop.reach(event.at_s)
            yield REALTIME.decode(self._translated(event.text))
        await self._loop.reach(self._recorded.end_s)

    def _translated(self, text: str) -> str:
        """Return a recorded client event with the ids of this run."""
        server = self._recorded.server
        while self._told < len(server) and server[self._told].at_s <= self._loop.time():
            self._recorded_names.labelled(json.loads(server[self._told].text))
            self._told += 1
        try:
            event = json.loads(text)
        except ValueError:
            return text
        if "_id" not in text and '"id"' not in text:
            return text
        return json.dumps(self._names.translated(event, self._recorded_names))


def _context(
    recorded: RecordedSession, spec: EngineSpec, engine: ReplayedEngine, loop: VirtualLoop, vad: Callable[[], Vad]
) -> SessionContext:
    settings = settings_of(spec.server)
    choice = EndOfTurnChoice(settings.turns.end_of_turn)
    measured = {name: iter(values) for name, values in recorded.measured.items()}
    began_s = float(recorded.head.get("wall_s", time.time()))
    return SessionContext(
        engine,
        Metrics(),
        settings.limits,
        settings.turns,
        vad,
        choice.model(engine.model),
        settings.camera_every_s,
        settings.summarize_at,
        settings.instructions,
        echo_canceller=echo_canceller(settings.turns.echo_cancellation),
        loop_time=LoopTimeBudget(FairScheduler(loop.time, loop.time)),
        now=loop.time,
        wall=lambda: began_s + loop.time(),
        end_of_turn_models=choice.models,
        measured=lambda name, value: next(measured.get(name, iter(())), value),
        inference=_ReplayedInference(recorded.pauses_s, loop),
    )


class _ReplayedInference(InferenceThread):
    """Computes the end-of-turn model's results at once, and releases them at the times of the recording."""

    def __init__(self, known_s: dict[int, float], loop: VirtualLoop) -> None:
        super().__init__()
        self._known_s = known_s
        self._loop = loop
        self._numbers = count(1)

    def submit(self, model: EndOfTurnModel, pcm: Pcm) -> Future[float]:
        judged = Future[float]()
        probability = model.listen(pcm)
        known_s = self._known_s.get(next(self._numbers), self._loop.time() + JUDGED_S)

        def release() -> None:
            if judged.set_running_or_notify_cancel():
                judged.set_result(probability)

        self._loop.at(known_s, release)
        return judged

    def warm_up(self, model: EndOfTurnModel) -> None:
        """Do nothing: the first result may take longer here."""

    def warn(self, reason: str) -> None:
        """Do nothing: the recorded server was late, not this one."""
