"""The output of a session as the session has to know of it: the input goes by some of it."""

from __future__ import annotations

from dataclasses import dataclass

from app.realtime.output.playout import Packet


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """The conversation has an answer under way."""


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """The conversation's answer is over; its listener hears the rest of it for ``left_s`` seconds."""

    left_s: float


@dataclass(frozen=True, slots=True)
class PacketSent:
    """These samples leave for the listener now."""

    packet: Packet


@dataclass(frozen=True, slots=True)
class PlaybackStopped:
    """The listener hears nothing of the samples that were not played yet."""


@dataclass(frozen=True, slots=True)
class SpeculationSettled:
    """An answer was begun in a pause, and the user had finished (``right``), or had not."""

    right: bool


@dataclass(frozen=True, slots=True)
class FirstSoundTook:
    """An answer to a spoken turn had its first sound so long after it was begun."""

    ms: float


OutputEvent = ResponseStarted | ResponseEnded | PacketSent | PlaybackStopped | SpeculationSettled | FirstSoundTook
