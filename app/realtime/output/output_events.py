"""Events of a session's output that its input depends on."""

from __future__ import annotations

from dataclasses import dataclass

from app.realtime.output.playout import Packet


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """The conversation has an active response."""


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """The conversation's response has ended; the listener hears the rest for ``left_s`` seconds."""

    left_s: float


@dataclass(frozen=True, slots=True)
class PacketSent:
    """These samples are sent to the listener now."""

    packet: Packet


@dataclass(frozen=True, slots=True)
class PlaybackStopped:
    """The listener hears none of the samples not yet played."""


@dataclass(frozen=True, slots=True)
class PlayerPaused:
    """The client pauses its playback: the listener hears the samples not yet played later."""


@dataclass(frozen=True, slots=True)
class PlayerResumed:
    """The client's playback goes on."""


@dataclass(frozen=True, slots=True)
class SpeculationSettled:
    """An answer was prepared in a pause, and the user had finished (``right``) or not."""

    right: bool


@dataclass(frozen=True, slots=True)
class FirstSoundTook:
    """The first audio of an answer to a spoken turn was ready ``ms`` after the answer was started."""

    ms: float


OutputEvent = (
    ResponseStarted
    | ResponseEnded
    | PacketSent
    | PlaybackStopped
    | PlayerPaused
    | PlayerResumed
    | SpeculationSettled
    | FirstSoundTook
)
