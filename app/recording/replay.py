"""Runs a recorded session again: the client's events at their times, a fresh session, and an engine of this process."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Any

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.realtime.input.echo_canceller import echo_canceller
from app.realtime.input.end_of_turn_choice import EndOfTurnChoice
from app.realtime.input.speaker_encoder import speaker_encoder
from app.realtime.input.turn_detector import Silero
from app.realtime.ports import Vad
from app.realtime.protocol import Received, ServerEvent
from app.realtime.protocol.dialect import REALTIME
from app.realtime.session import Session
from app.realtime.session_context import SessionContext
from app.recording.engine_thread import EngineThread, in_process
from app.recording.file import RecordedSession
from app.recording.id_labels import IdLabels
from app.recording.replayed_client import ReplayedClient
from app.recording.replayed_engine import ReplayedEngine
from app.recording.replayed_server import ReplayedInference, ReplayedLateness, ReplayedWaits
from app.recording.taps import part_names
from app.recording.virtual_loop import VirtualLoop
from app.settings import settings_of
from app.telemetry import Metrics
from engine import ConfigError, EngineSpec, parse_config


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
        EngineError: The deployment does not start, or its model is duplex.
        Refusal: It does not accept the session's initial settings.
    """
    engine = ReplayedEngine(recorded.requests, interims=spec is None)
    loop = VirtualLoop(engine.holds)
    seams = _own_seams(recorded, loop) if spec is None else {}
    spec = spec or parse_config(json.dumps(recorded.head["configuration"]))
    engine.thread = EngineThread(in_process(spec), lambda: _wake(loop))
    try:
        with engine.thread.running():
            if engine.model.duplex is not None:
                raise ConfigError(
                    f"Sessions with {engine.model.name} can't be replayed: it is duplex, and follows a clock."
                )
            began_s = time.monotonic()
            run = _Run(recorded, replace(_context(recorded, spec, engine, loop), vad=vad, **seams), loop)
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
        self._names = IdLabels()
        self._recorded_names = IdLabels()
        self._told = 0
        self._context = context
        self._client = ReplayedClient(recorded.head.get("opening", {}), loop.time)

    async def serve(self) -> list[dict[str, Any]]:
        """Run the session to its recorded end, and return its events."""
        opening = self._recorded.head.get("opening", {})
        profile = self._client.profile(self._context, ReplayedLateness(self._recorded.ahead_s))
        context = replace(self._context, idle=self._client.idle)
        session = Session(context, self._emit, opening.get("model", ""), opening.get("settings"), profile)
        try:
            await session.run(self._received())
        finally:
            await self._context.decoding.close()
        return self._events

    def _emit(self, event: ServerEvent) -> None:
        found = [json.loads(text) for text in REALTIME.encode(event)]
        self._events += found
        for one in (*found, *self._client.wire_events(event)):
            self._names.labelled(one)

    async def _received(self) -> AsyncGenerator[Received]:
        for event in self._recorded.client:
            if not event.follows:
                await self._loop.reach(event.at_s)
            if event.is_media:
                yield self._client.decode_media(event.text)
            else:
                yield self._client.decode(self._translated(event.text))
        await self._loop.reach(self._recorded.end_s)

    def _translated(self, text: str) -> str:
        """Return a recorded client event with the ids of this run."""
        named = self._recorded.named
        while self._told < len(named) and named[self._told].at_s <= self._loop.time():
            self._recorded_names.labelled(json.loads(named[self._told].text))
            self._told += 1
        try:
            event = json.loads(text)
        except ValueError:
            return text
        if "_id" not in text and '"id"' not in text:
            return text
        return json.dumps(self._names.translated(event, self._recorded_names))


def _context(recorded: RecordedSession, spec: EngineSpec, engine: ReplayedEngine, loop: VirtualLoop) -> SessionContext:
    settings = settings_of(spec.server)
    choice = EndOfTurnChoice(settings.turns.end_of_turn)
    began_s = float(recorded.head.get("wall_s", time.time()))
    return SessionContext(
        engine,
        Metrics(),
        settings.limits,
        settings.turns,
        Silero,
        choice.model(engine.model),
        settings.camera_every_s,
        settings.summarize_at,
        settings.instructions,
        echo_canceller=echo_canceller(settings.turns.echo_cancellation),
        speaker_encoder=speaker_encoder(),
        loop_time=LoopTimeBudget(FairScheduler(loop.time, loop.time)),
        now=loop.time,
        wall=lambda: began_s + loop.time(),
        end_of_turn_models=choice.models,
        inference=ReplayedInference(recorded.pauses_s, loop),
    )


def _own_seams(recorded: RecordedSession, loop: VirtualLoop) -> dict[str, Any]:
    """Return the fields of the session's context that repeat the recorded waits and measurements.

    With another configuration, tasks take other times.
    """
    measured = {name: iter(values) for name, values in recorded.measured.items()}
    return {
        "waits": ReplayedWaits(recorded.waits_s, loop, part_names()),
        "measured": lambda name, value: next(measured.get(name, iter(())), value),
    }
