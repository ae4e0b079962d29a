"""What a session tells its client, in our own words: a dialect's encoder turns each into its events.

The order of notices is the order of a dialect's events. Knows no wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.realtime.items import CallItem, Item, MessageItem, ToolListItem
from app.realtime.options import AnswerOptions, Options
from app.realtime.trouble import Refusal
from app.realtime.usage import Usage

Outcome = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
Reason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class SessionView:
    id: str
    expires_at_s: int
    options: Options
    loaded: Mapping[str, Any]
    """What really serves, whatever names the client asked for: model and voice."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The server is full: the client waits for a session, as the ``place``-th in line."""

    place: int


@dataclass(frozen=True, slots=True)
class SessionOpened:
    session: SessionView


@dataclass(frozen=True, slots=True)
class SessionChanged:
    session: SessionView


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    """The user speaks; ``at_ms`` counts from the session's first sample, prefix included."""

    item_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    item_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SilenceEnded:
    """Nobody spoke for so long after an answer that what was heard since is taken for a turn."""

    item_id: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class AudioCommitted:
    item_id: str
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class AudioCleared:
    pass


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """An item that is complete as it comes."""

    item: Item
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class ServerUnreached:
    """An MCP server whose tools the session can't have: its list stays empty."""

    item: ToolListItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class ItemShown:
    item: Item
    sounds: tuple[bytes, ...] = ()
    """What was heard in it, part by part: int16 little-endian at SPEAKER_RATE_HZ."""


@dataclass(frozen=True, slots=True)
class ItemDropped:
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemCut:
    """An answer ends at ``audio_end_ms`` for the conversation; ``heard`` are its words up to there."""

    item_id: str
    content_index: int
    audio_end_ms: int
    heard: str


@dataclass(frozen=True, slots=True)
class WordsHeard:
    """All that the user seems to have said so far in an item; the next may revise it, unless this is the last word."""

    item_id: str
    transcript: str
    final: bool


@dataclass(frozen=True, slots=True)
class Transcribed:
    """All that the user said in an item whose audio lasts ``seconds``."""

    item_id: str
    transcript: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    item_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AnswerView:
    """One response at some moment. ``conversation_id`` is None for one that the conversation does not keep."""

    id: str
    conversation_id: str | None
    options: AnswerOptions
    outcome: Outcome = "in_progress"
    reason: Reason | None = None
    error: tuple[str, str] | None = None
    """Code and message of what broke."""
    output: tuple[Item, ...] = ()
    usage: Usage | None = None
    ledger: Mapping[str, float] | None = None
    """Where the time to first audio went, in ms."""
    ttfa_ms: float | None = None
    """What the terms of the ledger add up to."""
    ahead_ms: float = 0.0
    """How much of that had passed when the user's turn was over."""
    turn_ms: float | None = None
    """The silence between the user's last word and the end of their turn; None where they did not speak."""


@dataclass(frozen=True, slots=True)
class AnswerOpened:
    answer: AnswerView


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many responses the session may have at a time, and how many more it may ask for now."""

    limit: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a response something belongs."""

    answer_id: str
    item_id: str
    index: int
    kept: bool
    """Whether the item is in the conversation too."""
    spoken: bool


@dataclass(frozen=True, slots=True)
class MessageOpened:
    place: Place
    item: MessageItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The next words: typed, or the transcript of what is said."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """The next sound, in the response's format; where the server plays, int16 little-endian at SPEAKER_RATE_HZ."""

    place: Place
    pcm: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class TextAligned:
    """How far the voice is in its text: (ms of the item's sound, characters that are spoken by then), both rising.

    The sound is counted from the item's first sample that is played; a character is a Unicode code point. Told before
    the sound, to who asked for it.
    """

    place: Place
    marks: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class PlaybackBegan:
    """The server plays the answer's first sound; told only where the server plays (``Line.plays``)."""

    answer_id: str


@dataclass(frozen=True, slots=True)
class PlaybackEnded:
    """All of the answer was played."""

    answer_id: str


@dataclass(frozen=True, slots=True)
class PlaybackCut:
    """The answer fell silent before its end: nothing of it is heard from now on."""

    answer_id: str


@dataclass(frozen=True, slots=True)
class MessageClosed:
    place: Place
    item: MessageItem
    text: str
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class CallOpened:
    place: Place
    item: CallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class CallPiece:
    """The next characters of a call's arguments."""

    place: Place
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    place: Place
    item: CallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class AnswerClosed:
    answer: AnswerView


@dataclass(frozen=True, slots=True)
class Trouble:
    """A command was refused, or broke; ``event_id`` is the client's name for it."""

    refusal: Refusal
    event_id: str | None


Notice = (
    Queued
    | SessionOpened
    | SessionChanged
    | SpeechBegan
    | SpeechEnded
    | SilenceEnded
    | AudioCommitted
    | AudioCleared
    | ItemAdded
    | ServerUnreached
    | ItemShown
    | ItemDropped
    | ItemCut
    | WordsHeard
    | Transcribed
    | TranscriptionFailed
    | AnswerOpened
    | Allowance
    | MessageOpened
    | TextPiece
    | AudioPiece
    | TextAligned
    | PlaybackBegan
    | PlaybackEnded
    | PlaybackCut
    | MessageClosed
    | CallOpened
    | CallPiece
    | CallClosed
    | AnswerClosed
    | Trouble
)
