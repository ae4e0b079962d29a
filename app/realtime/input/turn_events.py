"""The turn as the input buffer finds it. The session takes these events, and decides what each of them means.

Positions are milliseconds from the session's first sample.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.realtime.conversation import Utterance


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The user speaks, since ``start_ms`` (prefix padding included)."""

    utterance: Utterance
    start_ms: int


@dataclass(frozen=True, slots=True)
class OverlapStarted:
    """The user says something over an answer: ``TurnStarted`` follows, or ``TurnDropped`` if it was no turn."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class VoiceBuffered:
    """A voice can be heard that opens no turn yet: the client commits the buffer, or it may be another person's."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class TurnPaused:
    """The user may have finished."""


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """The user goes on after a pause, in the same turn."""


@dataclass(frozen=True, slots=True)
class TurnStopped:
    """A silence ended the turn at ``end_ms``, or it became as long as a turn may be."""

    utterance: Utterance
    end_ms: int


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    """The client says that the turn is over."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class IdleTimedOut:
    """Nobody spoke for so long after an answer that the silence itself is taken for a turn."""

    utterance: Utterance
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class TurnDropped:
    """The open turn is forgotten: the client cleared the buffer, or switched turn detection on or off; or it was a
    listener's word, and is none."""


@dataclass(frozen=True, slots=True)
class SpeakerFound:
    """A turn that has ended was spoken by this one of the session's voices."""

    item_id: str
    speaker: str


@dataclass(frozen=True, slots=True)
class SessionIdled:
    """Nothing has happened for the session's idle timeout: it pauses."""


@dataclass(frozen=True, slots=True)
class SessionWoken:
    """Speech or a response ends the pause."""


TurnEvent = (
    TurnStarted
    | OverlapStarted
    | VoiceBuffered
    | TurnPaused
    | TurnResumed
    | TurnStopped
    | TurnCommitted
    | IdleTimedOut
    | TurnDropped
    | SpeakerFound
    | SessionIdled
    | SessionWoken
)
