"""A Realtime server's events as types: those that a client acts on, and ``Other`` for the rest.

The names and fields are the protocol's (openai-python ``types/realtime``). Knows no socket.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from engine.core import Pcm


class SessionCreated(Struct, frozen=True):
    """The first event of every session: its settings."""

    session: dict[str, Any]


class SessionUpdated(Struct, frozen=True):
    session: dict[str, Any]


class SpeechStarted(Struct, frozen=True):
    """The user began to speak; what was playing is to stop."""

    item_id: str
    audio_start_ms: int


class SpeechStopped(Struct, frozen=True):
    item_id: str
    audio_end_ms: int


class TranscriptionCompleted(Struct, frozen=True):
    """The user's words in an item."""

    item_id: str
    transcript: str


class ResponseCreated(Struct, frozen=True):
    response: dict[str, Any]

    @property
    def id(self) -> str:
        return self.response["id"]


class TextDelta(Struct, frozen=True):
    """The next words of an answer, typed or spoken."""

    response_id: str
    item_id: str
    delta: str


class AudioDelta(Struct, frozen=True):
    """The next samples of an answer."""

    response_id: str
    item_id: str
    delta: bytes

    @property
    def pcm(self) -> Pcm:
        """int16 [samples] at SPEAKER_RATE_HZ."""
        return np.frombuffer(self.delta, "<i2")


class CallDone(Struct, frozen=True):
    """The model asks for a function."""

    response_id: str
    call_id: str
    name: str
    arguments: str


class ResponseDone(Struct, frozen=True):
    """The end of an answer, whatever its status."""

    response: dict[str, Any]

    @property
    def id(self) -> str:
        return self.response["id"]

    @property
    def status(self) -> str:
        return self.response["status"]


class ItemTruncated(Struct, frozen=True):
    """An answer was cut to what was heard of it."""

    item_id: str
    audio_end_ms: int


class Error(Struct, frozen=True):
    """Something that was asked can't be done; the session goes on."""

    error: dict[str, Any]

    @property
    def code(self) -> str:
        return self.error.get("code") or self.error.get("type") or "error"

    @property
    def message(self) -> str:
        return self.error.get("message") or ""

    @property
    def event_id(self) -> str | None:
        """The client's own name for what it asked."""
        return self.error.get("event_id")


class Other(Struct, frozen=True):
    """Any other event, as it came."""

    type: str
    event: dict[str, Any]


Event = (
    SessionCreated
    | SessionUpdated
    | SpeechStarted
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
    """The event in a message. Raises ValueError for what is no event of the protocol."""
    tree: Any = msgspec.json.decode(text)
    if not isinstance(tree, dict) or not isinstance(kind := tree.get("type"), str):
        raise ValueError("an event is a JSON object with a 'type'")
    known = _KINDS.get(kind)
    return msgspec.convert(tree, known) if known is not None else Other(kind, tree)
