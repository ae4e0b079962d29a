"""A dialect: the words in which one API's clients and the session understand each other. Realtime is one of them.

A dialect decodes what a client says to client events, and encodes server events. It may remember what it said, so each
session has one of its own; Realtime's is stateless, and one serves all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from app.realtime.protocol import from_wire, to_wire
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.server_events import ServerEvent
from engine.core import Pcm

Ended = Literal["closed", "left", "lost"]
"""The end of a session: the server, or who may command it, closed it; its client left; or its client was lost."""


class Dialect(Protocol):
    """The dialect of one session, and of all its channels."""

    def decode(self, text: str) -> Received:
        """Decode what the client said, or a Refusal in its place. Never raises for what a client sends."""
        ...

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        """Return the texts of an event, each with a number where the client counts them."""
        ...

    def reflect_input(self, pcm: Pcm) -> str | None:
        """Return what sockets beside a call are told of the microphone's next sound (int16 at MIC_RATE_HZ); None where
        the dialect keeps sound from them."""
        ...

    def reflect_output(self, pcm: bytes) -> str | None:
        """Return the same of the sound that has just left (little-endian int16 at SPEAKER_RATE_HZ), behind its
        event."""
        ...

    def farewell(self, ended: Ended) -> list[str]:
        """Return the last texts of a session that has ended, where it has not told its end yet."""
        ...


class Realtime:
    """The OpenAI Realtime GA protocol."""

    def decode(self, text: str) -> Received:
        return from_wire.decode(text)

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        return to_wire.encode(event, numbers)

    def reflect_input(self, pcm: Pcm) -> str | None:
        return None

    def reflect_output(self, pcm: bytes) -> str | None:
        return None

    def farewell(self, ended: Ended) -> list[str]:
        return []


REALTIME = Realtime()
