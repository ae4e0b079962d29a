"""A Realtime server's events as types: those that a client acts on, and ``Other`` for the rest.

Names and fields are the protocol's (openai-python ``types/realtime``).
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from engine.core import Pcm


class SessionCreated(Struct, frozen=True):
    """The first event of a session, with its settings."""

    session: dict[str, Any]


class SessionUpdated(Struct, frozen=True):
    session: dict[str, Any]


class SpeechStarted(Struct, frozen=True):
    """The user started to speak. Playback should stop."""

    item_id: str
    audio_start_ms: int


class PlaybackPaused(Struct, frozen=True):
    """The user speaks over an answer: playback pauses until ``SpeechStarted`` or ``PlaybackResumed``."""


class PlaybackResumed(Struct, frozen=True):
    """The user's speech was a backchannel: playback goes on where it paused."""


class SpeechStopped(Struct, frozen=True):
    item_id: str
    audio_end_ms: int


class TranscriptionCompleted(Struct, frozen=True):
    """The transcript of a user's item."""

    item_id: str
    transcript: str


class ResponseCreated(Struct, frozen=True):
    response: dict[str, Any]

    @property
    def id(self) -> str:
        return self.response["id"]


class TextDelta(Struct, frozen=True):
    """The next words of an answer, written or spoken."""

    response_id: str
    item_id: str
    delta: str


class AudioDelta(Struct, frozen=True):
    """The next audio of an answer."""

    response_id: str
    item_id: str
    delta: bytes

    @property
    def pcm(self) -> Pcm:
        """The audio as int16 [samples] at SPEAKER_RATE_HZ."""
        return np.frombuffer(self.delta, "<i2")


class CallDone(Struct, frozen=True):
    """The model calls a function."""

    response_id: str
    call_id: str
    name: str
    arguments: str


class ResponseDone(Struct, frozen=True):
    """The end of a response, with any status."""

    response: dict[str, Any]

    @property
    def id(self) -> str:
        return self.response["id"]

    @property
    def status(self) -> str:
        return self.response["status"]


class ItemTruncated(Struct, frozen=True):
    """An answer was truncated to the part that was heard."""

    item_id: str
    audio_end_ms: int


class Error(Struct, frozen=True):
    """A request of the client failed; the session continues."""

    error: dict[str, Any]

    @property
    def code(self) -> str:
        return self.error.get("code") or self.error.get("type") or "error"

    @property
    def message(self) -> str:
        return self.error.get("message") or ""

    @property
    def event_id(self) -> str | None:
        """The id of the client's event that failed."""
        return self.error.get("event_id")


class Other(Struct, frozen=True):
    """Any other event, unchanged."""

    type: str
    event: dict[str, Any]


Event = (
    SessionCreated
    | SessionUpdated
    | SpeechStarted
    | PlaybackPaused
    | PlaybackResumed
    | SpeechStopped
    | TranscriptionCompleted
    | ResponseCreated
    | TextDelta
    | AudioDelta
    | CallDone
    | ResponseDone
    | ItemTruncated
    | Error
    | Other
)

_KINDS: dict[str, type[Event]] = {
    "session.created": SessionCreated,
    "session.updated": SessionUpdated,
    "input_audio_buffer.speech_started": SpeechStarted,
    "parley.output_audio.paused": PlaybackPaused,
    "parley.output_audio.resumed": PlaybackResumed,
    "input_audio_buffer.speech_stopped": SpeechStopped,
    "conversation.item.input_audio_transcription.completed": TranscriptionCompleted,
    "response.created": ResponseCreated,
    "response.output_text.delta": TextDelta,
    "response.output_audio_transcript.delta": TextDelta,
    "response.output_audio.delta": AudioDelta,
    "response.function_call_arguments.done": CallDone,
    "response.done": ResponseDone,
    "conversation.item.truncated": ItemTruncated,
    "error": Error,
}


def decode(text: str | bytes) -> Event:
    """Decode an event. Raises ValueError if the message is not an event of the protocol."""
    tree: Any = msgspec.json.decode(text)
    if not isinstance(tree, dict) or not isinstance(kind := tree.get("type"), str):
        raise ValueError("it is not a JSON object with a 'type' string")
    known = _KINDS.get(kind)
    return msgspec.convert(tree, known) if known is not None else Other(kind, tree)
