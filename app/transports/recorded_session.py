"""Records a session if the operator set ``server.recordings`` and the client asked for it with ``?record=true``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import HTTPConnection

from app.ids import new_id
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import Received, ServerEvent
from app.realtime.protocol.dialect import REALTIME
from app.realtime.session_context import SessionContext
from app.recording.client_tap import ClientTap
from app.recording.lines import HEAD, VERSION, without_secrets
from app.recording.taps import RecordedLateness, StepClock, tapped
from app.recording.writer import RecordingWriter
from app.refusal import Closed, ServerFault
from app.service import Service
from app.telemetry import audit, log
from app.transports.channel import Channel
from app.transports.opening import Opening
from engine.deployment.installation import DISTRIBUTION
from engine.deployment.plain import plain

REPLAYED_SETTINGS = ("limits", "turns", "camera_every_s", "summarize_at", "instructions")
"""The keys of ``server:`` that a replay needs. Others may hold secrets."""

PROFILE = ("lead_s", "packet_s", "plays", "streams_input", "reserve_s")
"""The fields of the playout profile that a replay needs."""


def asks_for_recording(request: HTTPConnection, service: Service) -> bool:
    """Return whether the client asks for a recording. Raises Closed if this server records no sessions."""
    if request.query_params.get("record") != "true":
        return False
    if service.settings.recordings is None:
        raise Closed("recording_disabled", "This server records no sessions: server.recordings is not set.", 403)
    return True


class SessionRecording:
    """The recording of one session. It sets the dialect of ``channel``."""

    def __init__(self, service: Service, context: SessionContext, channel: Channel, opening: Opening) -> None:
        began = datetime.now(UTC)
        path = Path(service.settings.recordings or "") / f"{began:%Y%m%dT%H%M%S}-{new_id('rec')}.jsonl"
        clock = StepClock(context.now)
        context = replace(context, now=clock)
        self._writer = RecordingWriter(path, clock.tick)
        self._service = service
        self._opening = opening
        self._began = began
        self.context = tapped(context, self._writer)
        """The context of the recorded session."""
        self._client = channel.dialect = ClientTap(channel.dialect, self._writer)

    def tapped(self, profile: PlayoutProfile) -> PlayoutProfile:
        """Return the playout profile of the recorded session."""
        if profile.lateness is not None:
            profile = replace(profile, lateness=RecordedLateness(profile.lateness, self._writer))
        lag_s = profile.lag_s
        return replace(profile, lag_s=lambda: self.context.measured("lag_s", lag_s())) if profile.plays else profile

    def recorded(self, emit: Callable[[ServerEvent], None]) -> Callable[[ServerEvent], None]:
        """Return a function that records each server event in the Realtime protocol and passes it on."""

        def record(event: ServerEvent) -> None:
            for text in REALTIME.encode(event):
                self._writer.add("in", text)
            emit(event)

        return record

    async def received(self, messages: AsyncGenerator[Received]) -> AsyncGenerator[Received]:
        """Yield the client's messages, and record each at the moment when the session takes it."""
        async with aclosing(messages):
            async for one in messages:
                self._client.record(one)
                yield one

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Record while the block lasts. Raises ServerFault if the files cannot be created."""
        try:
            self._writer.open(self._head())
        except OSError as error:
            log("recording.failed", path=str(self._writer.path), error=error.strerror)
            raise ServerFault("recording_failed", "The server can't write the recording.") from None
        audit("recording.started", path=str(self._writer.path), client=self._opening.caller.address)
        try:
            yield
        finally:
            self.end()
            await self._writer.finished()

    def end(self) -> None:
        """End the recording before the session. May be called twice."""
        self._writer.close()

    def _head(self) -> dict[str, Any]:
        hosts, model = self._service.hosts, self.context.engine.model.name
        spec = without_secrets(plain(hosts.of(model).spec))
        server = hosts.default.spec.server
        opening = self._opening
        live = {} if opening.live is None else {"live": without_secrets(opening.live)}
        return {
            HEAD: VERSION,
            "began": self._began.isoformat(),
            "wall_s": self._began.timestamp(),
            "parley": importlib.metadata.version(DISTRIBUTION),
            "model": model,
            "configuration": {**spec, "server": {name: server[name] for name in REPLAYED_SETTINGS if name in server}},
            "opening": {
                "model": opening.model,
                "settings": without_secrets(opening.settings or {}),
                "profile": {name: getattr(opening.profile, name) for name in PROFILE},
                **live,
            },
        }
