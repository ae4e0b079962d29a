"""The recorded client: its protocol, its playout and its messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from app.live import LiveDialect, OutputTimeline, started
from app.realtime.ports import IdlePolicy, PlayoutProfile
from app.realtime.protocol import Received, ServerEvent
from app.realtime.protocol.client_events import CreateItem, InputSamples
from app.realtime.protocol.dialect import REALTIME, Dialect
from app.realtime.protocol.server_events import AudioDeltaEvent, SoundPlayedEvent
from app.realtime.session_context import SessionContext
from app.realtime.timer_lateness import TimerLatenessEstimator
from app.recording import lines
from app.refusal import Refusal


class ReplayedClient:
    """The client of a recording with this ``opening``. ``now`` returns the time of the replay."""

    def __init__(self, opening: dict[str, Any], now: Callable[[], float]) -> None:
        self._profile = PlayoutProfile(**opening.get("profile", {}))
        self._dialect: Dialect = REALTIME
        self._history: Iterator[Any] = iter(())
        self.idle: IdlePolicy | None = None
        """When the session pauses; None: never."""
        if (live := opening.get("live")) is not None:
            media = self._profile.streams_input
            config = started(live, media=media)
            self._dialect = LiveDialect(config, OutputTimeline(now, filled=not media))
            self._history = iter(config.history)
            self.idle = config.idle

    def profile(self, context: SessionContext, lateness: TimerLatenessEstimator) -> PlayoutProfile:
        """Return the playout of the replayed session."""
        return replace(self._profile, lag_s=lambda: context.measured("lag_s", 0.0), lateness=lateness)

    def decode(self, text: str) -> Received:
        """Decode a recorded message."""
        return self._dialect.decode(text)

    def decode_media(self, text: str) -> Received:
        """Decode recorded input that was no message; see ``ClientTap``."""
        event: dict[str, Any] = json.loads(text)
        match event["type"]:
            case lines.MICROPHONE:
                pcm = np.frombuffer(base64.b64decode(event["audio"]), "<i2").astype(np.int16)
                return Received(InputSamples(pcm if len(pcm) else np.zeros(event["samples"], np.int16)))
            case lines.REFUSED:
                return Received(Refusal(event["code"], event["message"], event["param"]))
            case lines.HISTORY:
                return Received(CreateItem(next(self._history)))
            case _:  # a camera frame
                return REALTIME.decode(text)

    def wire_events(self, event: ServerEvent) -> list[dict[str, Any]]:
        """Return an event in the client's protocol, unless that is Realtime."""
        if self._dialect is REALTIME:
            return []
        if isinstance(event, AudioDeltaEvent) and self._profile.plays:
            event = SoundPlayedEvent(event.ref, len(event.pcm) // 2)
        return [json.loads(text) for text in self._dialect.encode(event)]
