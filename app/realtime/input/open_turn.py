"""The turn that the user is speaking, and the audio and camera frames around it."""

from __future__ import annotations

from collections.abc import Callable

from app.realtime.conversation import Utterance
from app.realtime.input import turn_events
from app.realtime.input.camera_buffer import CameraBuffer
from app.realtime.input.recent_audio import RecentAudio
from app.realtime.input.turn_events import TurnEvent
from app.realtime.protocol import CameraFrame
from app.realtime.session_context import SessionContext
from engine import MIC_RATE_HZ
from engine.core import Pcm


class OpenTurn:
    """The open turn of one session, however its end is found. ``emit`` takes each turn event and never waits."""

    def __init__(self, context: SessionContext, emit: Callable[[TurnEvent], None]) -> None:
        self.emit = emit
        self.utterance: Utterance | None = None
        self.recent = RecentAudio()
        self.limit = int(context.limits.audio_s * MIC_RATE_HZ)
        """Samples of the longest turn."""
        self.quiet_from: int | None = None
        """The position where the last response ended; None once the user has spoken since."""
        model = context.engine.model
        self._feed = model.camera
        self._film = "video" in model.abilities
        self._camera = CameraBuffer(1 / context.camera.fps)
        self._now = context.now

    def begin(self, start: int, pcm: Pcm) -> Utterance:
        """Open a turn that starts at that position with int16 [samples] ``pcm``."""
        self.utterance = utterance = Utterance(self.limit, self._feed, self._film, start)
        utterance.push(pcm)
        self.show()
        return utterance

    def end(self, event: TurnEvent) -> None:
        """Close the turn with ``event``; from now on it belongs to the session."""
        self.show()
        self.utterance = None
        self.quiet_from = None
        self._camera.clear()
        self.emit(event)

    def drop(self) -> None:
        """Forget the turn, if one is open."""
        utterance = self.utterance
        self.utterance = None
        if utterance is not None:
            self.emit(turn_events.TurnDropped())
            utterance.close()

    def forget(self) -> None:
        """Free all audio and camera frames: the session is over."""
        self.utterance = None
        self.recent.clear()
        self._camera.clear()

    def is_frame_due(self) -> bool:
        """Whether the camera's next frame is worth decoding now."""
        return self._camera.is_due(self._now())

    def add_frame(self, frame: CameraFrame) -> None:
        """Add a camera frame to the open turn, or keep it for the next one."""
        self._camera.add_frame(frame, self._now(), self.recent.position)
        self.show()

    def show(self) -> None:
        """Move the waiting camera frames into the turn, except in a pause: its response is made without them."""
        if self.utterance is not None and not self.utterance.paused:
            for frame, position in self._camera.take(self._now()):
                self.utterance.add_frame(frame, position)
