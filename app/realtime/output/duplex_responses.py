"""The responses of a duplex session, derived from the continuous output of its model.

The model speaks whenever it wants: where it begins, a response begins; after a pause the response is completed. If the
user interrupts, the model falls silent itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.realtime.conversation import Conversation
from app.realtime.output.live_playout import LivePlayout
from app.realtime.output.model_speech import ModelSpeech
from app.realtime.output.playout import Packet
from app.realtime.output.response_emitter import ResponseEmitter
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import (
    OutputEncoder,
    ServerEvent,
    SessionOptions,
    SpeakerFormat,
    response_options,
    server_events,
)
from app.realtime.refusals import no_active_response
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.telemetry import audit, log
from engine import SPEAKER_RATE_HZ, Audio, Text, Usage
from engine.core import Wave

MOST_UNSENT_S = 1.0
"""Seconds of audio that may wait for a client that reads slowly. Further audio is dropped."""

LEAD_IN = 3
"""Frames that are kept to begin a response: two that were loud before a word was known, and the quiet one before."""


class DuplexResponses:
    """The responses of one session. ``emit`` takes events and never waits; ``options`` are the session's settings."""

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        conversation: Conversation,
        options: SessionOptions,
        profile: PlayoutProfile,
        emit: Callable[[ServerEvent], None],
    ) -> None:
        self.options = options
        self.present = True
        """Whether the client is connected. Meanwhile no audio is sent."""
        self.has_spoken = False
        """Whether the model has spoken."""
        self._session_id = session_id
        self._context = context
        self._conversation = conversation
        self._profile = profile
        self._emit = emit
        self._speech = ModelSpeech()
        self._playout = LivePlayout()
        self._recent: deque[Wave] = deque(maxlen=LEAD_IN)  # not sent, if the client plays
        self._current: _Current | None = None
        self._silenced = False  # the rest of this speech is not wanted
        self._frames = 0  # since the last response
        self._frame_samples = 0
        self._encoder = OutputEncoder(SpeakerFormat())
        self._changed = asyncio.Event()

    def take(self, chunk: Audio | Text) -> None:
        """Take the model's next frame, or the text that came with the last one."""
        try:
            if isinstance(chunk, Audio):
                self._take_audio(chunk.wave)
            else:
                self._take_text(chunk.text)
        except Refusal as refusal:  # the conversation has no room for the response
            self._silenced = True
            self._end("failed", error=(refusal.code, str(refusal)))

    def cancel(self, response_id: str | None) -> None:
        """Silence the model until it pauses. Raises Refusal if no such response is active."""
        if self._current is None or response_id not in (None, self._current.response.id):
            raise no_active_response(response_id)
        self.silence()

    def silence(self) -> None:
        """Silence the model until it pauses, because the client wants it."""
        self._silenced = self._speech.speaking
        self._end("cancelled", "client_cancelled")

    def finish(self) -> None:
        """Complete the active response: the model has ended, or starts anew."""
        self._end("completed")
        self._restart()

    def fail(self, code: str, message: str) -> None:
        """End the active response as failed."""
        self._end("failed", error=(code, message))
        self._restart()

    async def quiet(self) -> None:
        """Wait until the model does not speak, or the client is disconnected."""
        while self.present and self._current is not None:
            self._changed.clear()
            await self._changed.wait()

    def set_present(self, present: bool) -> None:
        """Set whether the client is connected."""
        self.present = present
        self._changed.set()

    def _restart(self) -> None:
        self._speech = ModelSpeech()
        self._recent.clear()
        self._silenced = False

    def _take_audio(self, wave: Wave) -> None:
        self._frames += 1
        self._frame_samples = len(wave)
        self._speech.audio(wave)
        if not self._speech.speaking:
            self._silenced = False
            self._end("completed")
        if self._current is not None:
            self._send(self._current, wave)
            return
        self._pass_between(wave)
        if self._speech.speaking:
            self._begin()

    def _take_text(self, text: str) -> None:
        if self._current is None and not text.strip():
            return
        self._speech.word()
        self._begin()
        if (current := self._current) is not None:
            piece = text if current.characters else text.lstrip()
            current.tokens += 1
            current.characters += len(piece)
            current.response.text(piece, ())
            current.response.reached([(current.samples + self._frame_samples, current.characters)])

    def _begin(self) -> None:
        """Begin a response, unless one is active or the client has silenced this speech."""
        if self._current is not None or self._silenced:
            return
        options = response_options(self.options, {})[0]
        model = self._context.engine.model
        response = ResponseEmitter(options, self._conversation, model, self._emit, self._profile)
        self._current = current = _Current(response)
        self.has_spoken = True
        log("response.created", session=self._session_id, response=response.id)
        response.open()
        lead_in = max(1, self._speech.loud_frames) + 1
        for wave in tuple(self._recent)[-lead_in:]:
            self._send(current, wave)
        self._recent.clear()

    def _send(self, current: _Current, wave: Wave) -> None:
        """Send audio of a response. A response that is too long is cut into several."""
        if current.response.options.speaks and self._admits(wave, speech=True):
            current.samples += len(wave)
            current.response.audio(Packet(wave))
        if current.samples >= self._context.limits.answer_s * SPEAKER_RATE_HZ:
            self._end("incomplete", "max_output_tokens")

    def _pass_between(self, wave: Wave) -> None:
        """Take audio that belongs to no response: the listener hears it if the server plays."""
        if not self._profile.plays:
            self._recent.append(wave)
        elif not self._silenced and "audio" in self.options.output_modalities and self._admits(wave, speech=False):
            pcm = self._encoder.push(wave)
            self._emit(server_events.BackgroundAudioEvent(pcm))

    def _admits(self, wave: Wave, speech: bool) -> bool:
        """Return whether the listener can still take audio; otherwise it is dropped and counted."""
        seconds = len(wave) / SPEAKER_RATE_HZ
        if not self.present or self._profile.unsent_s() > MOST_UNSENT_S:
            self._context.metrics.duplex_dropped_s.labels("unread").inc(seconds)
            return False
        if not self._playout.admits(seconds, speech, self._context.now(), self._profile.ahead_s()):
            self._context.metrics.duplex_dropped_s.labels("late").inc(seconds)
            return False
        return True

    def _end(
        self,
        outcome: server_events.Outcome,
        reason: server_events.Reason | None = None,
        error: tuple[str, str] | None = None,
    ) -> None:
        current = self._current
        if current is None:
            return
        self._current = None
        response = current.response
        response.used(Usage(input_tokens=self._frames, output_tokens=current.tokens, audio_tokens=self._frames))
        self._frames = 0
        response.close(outcome, reason, error, current.samples if outcome in ("cancelled", "failed") else None)
        response.played()
        self._report(current, outcome, error)
        self._changed.set()

    def _report(self, current: _Current, outcome: str, error: tuple[str, str] | None) -> None:
        self._context.metrics.responses.labels(outcome).inc()
        figures: dict[str, object] = {"audio_s": current.samples / SPEAKER_RATE_HZ}
        failure = {"error": error[0]} if error else {}
        id = current.response.id
        audit("response.done", session=self._session_id, response=id, status=outcome, **figures, **failure)


@dataclass(slots=True)
class _Current:
    """The active response."""

    response: ResponseEmitter
    samples: int = 0
    """Samples that were sent."""
    characters: int = 0
    tokens: int = 0
