"""Records a session if the operator set ``server.recordings`` and the client asked for it with ``?record=true``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.ids import new_id
from app.realtime.session_context import SessionContext
from app.recording.lines import HEAD, VERSION, without_secrets
from app.recording.taps import RecordedDialect, tapped
from app.recording.writer import RecordingWriter
from app.refusal import Closed, ServerFault
from app.service import Service
from app.telemetry import audit, log
from app.transports.channel import Channel
from app.transports.connection import Opening
from engine.deployment.installation import DISTRIBUTION
from engine.deployment.plain import plain

REPLAYED_SETTINGS = ("limits", "turns", "camera_every_s", "summarize_at", "instructions")
"""The keys of ``server:`` that a replay needs. Others may hold secrets."""


@dataclass(frozen=True, slots=True)
class SessionRecording:
    """A session that is being recorded."""

    context: SessionContext
    """The context of the recorded session."""
    end: Callable[[], None]
    """Ends the recording before the session. May be called twice."""


def check_recording(service: Service) -> None:
    """Raise Closed if this server records no sessions."""
    if service.settings.recordings is None:
        raise Closed("recording_disabled", "This server records no sessions: server.recordings is not set.", 403)


@asynccontextmanager
async def recorded(
    service: Service, context: SessionContext, channel: Channel, opening: Opening
) -> AsyncGenerator[SessionRecording]:
    """Record the session of a channel while the block lasts. Raises ServerFault if the files cannot be created."""
    began = datetime.now(UTC)
    path = Path(service.settings.recordings or "") / f"{began:%Y%m%dT%H%M%S}-{new_id('rec')}.jsonl"
    try:
        writer = RecordingWriter(path, _head(service, context, opening, began), context.now)
    except OSError as error:
        log("recording.failed", path=str(path), error=error.strerror)
        raise ServerFault("recording_failed", "The server can't write the recording.") from None
    audit("recording.started", path=str(path), client=opening.caller.address)
    try:
        channel.dialect = RecordedDialect(channel.dialect, writer)
        yield SessionRecording(tapped(context, writer), writer.close)
    finally:
        writer.close()
        await writer.finished()


def _head(service: Service, context: SessionContext, opening: Opening, began: datetime) -> dict[str, Any]:
    spec = without_secrets(plain(service.hosts.of(context.engine.model.name).spec))
    server = service.engine_host.spec.server
    return {
        HEAD: VERSION,
        "began": began.isoformat(),
        "wall_s": context.wall(),
        "parley": importlib.metadata.version(DISTRIBUTION),
        "model": context.engine.model.name,
        "configuration": {**spec, "server": {name: server[name] for name in REPLAYED_SETTINGS if name in server}},
        "opening": {"model": opening.model, "settings": without_secrets(opening.settings or {})},
    }
