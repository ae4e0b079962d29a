"""The input side of a session: audio and camera frames come in, turn events go out.

Turns are found by voice activity (``voice``), or the client commits them (``ManualTurn``). This package imports no
wire format and nothing of the responses: the session reports when a response begins, plays and ends.
"""

from __future__ import annotations

from collections.abc import Callable

from app.realtime.input import turn_events
from app.realtime.input.camera_buffer import frame_of
from app.realtime.input.manual_turn import ManualTurn
from app.realtime.input.microphone_pipeline import MicrophonePipeline
from app.realtime.input.open_turn import OpenTurn
from app.realtime.input.speculation import Speculation
from app.realtime.input.turn_events import TurnEvent
from app.realtime.input.voice_turns import VoiceTurns
from app.realtime.protocol import CameraFrame, SessionOptions
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from engine.core import Pcm

SHORTEST_S = 0.1
"""The protocol's shortest audio for a commit."""


class InputAudioBuffer:
    """The input buffer of one session.

    ``emit`` takes each turn event at once and never waits; a Refusal that it raises is passed on.
    """

    def __init__(self, context: SessionContext, options: SessionOptions, emit: Callable[[TurnEvent], None]) -> None:
        self._context = context
        self.speculation = Speculation(context.turns.guess_ms)
        self.pipeline = MicrophonePipeline(context, options)
        self._turn = OpenTurn(context, emit)
        self.voice = VoiceTurns(context, options, self._turn, self.speculation, self.pipeline.echo)
        self._manual: ManualTurn | None = None  # only while turn detection is off
        self.configure(options)

    def configure(self, options: SessionOptions) -> None:
        """Take new settings. Switching turn detection on or off drops the open turn."""
        self.pipeline.configure(options)
        if options.audio.input.turn_detection is not None and self._manual is not None:
            self._manual = None
            self._turn.drop()
            self.voice.restart()
        elif options.audio.input.turn_detection is None and self._manual is None:
            self.voice.reset()
            self._turn.drop()
            self._manual = ManualTurn(self._context, options, self._turn, self.speculation)
        self.voice.configure(options)
        if self._manual is not None:
            self._manual.options = options

    async def append(self, data: bytes) -> None:
        """Take bytes in the session's format. Raises MediaError, and Refusal."""
        if self._has_room(self.pipeline.count(data)):
            async for pcm in self.pipeline.decoded(data):
                await self.add_samples(pcm)

    async def add_samples(self, pcm: Pcm) -> None:
        """Take int16 [samples] at MIC_RATE_HZ. Raises Refusal."""
        if not self._has_room(len(pcm)):
            return
        turns = self._manual or self.voice
        for sound, clean in self.pipeline.steps(pcm):
            turns.feed(sound, clean)
            await self._context.pause()

    def commit(self) -> None:
        """End the turn because the client says so. Raises Refusal if it is too short."""
        utterance = self._turn.utterance
        if utterance is None or utterance.seconds < SHORTEST_S:
            held_ms = 0 if utterance is None else round(utterance.seconds * 1000)
            message = f"A turn needs {SHORTEST_S * 1000:.0f} ms of audio; the buffer holds {held_ms} ms."
            raise Refusal("input_audio_buffer_commit_empty", message)
        if self._manual is None:
            self.voice.commit()
        else:
            self._manual.reset()
        self._turn.end(turn_events.TurnCommitted(utterance))

    def clear(self) -> None:
        """Drop everything since the last turn."""
        (self._manual or self.voice).reset()
        self._turn.drop()
        self._turn.recent.clear()

    def forget(self) -> None:
        """Free all audio and camera frames: the session is over."""
        self._turn.forget()
        self.voice.forget()

    async def add_encoded_frame(self, url: str) -> None:
        """Decode a camera frame from a data URI and add it, if one is due. Raises MediaError."""
        if self._turn.is_frame_due():
            self.add_frame(await frame_of(url, self._context))

    def add_frame(self, frame: CameraFrame) -> None:
        """Add a camera frame to the open turn, or to the next one."""
        self._turn.add_frame(frame)

    def _has_room(self, samples: int) -> bool:
        return self._manual is None or self._manual.has_room(samples)
