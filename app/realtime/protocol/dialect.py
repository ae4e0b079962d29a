"""A dialect translates between one API's messages and the session's events. Realtime is one of them.

It decodes client messages to client events and encodes server events. A dialect may keep state, so each session has its
own; Realtime's is stateless and shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from app.realtime.protocol import from_wire, to_wire
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.server_events import ServerEvent
from engine.core import Pcm

Ended = Literal["closed", "left", "lost"]
"""How a session ended: closed by the server or an authorised client, left by its client, or the client was lost."""


class Dialect(Protocol):
    """The dialect of one session, and of all its channels."""

    def decode(self, text: str) -> Received:
        """Decode a client's message. Returns a Refusal for an invalid one; never raises."""
        ...

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        """Return the messages of an event, numbered if the client asked for sequence numbers."""
        ...

    def reflect_input(self, pcm: Pcm) -> str | None:
        """Return a message with the microphone's next audio (int16 at MIC_RATE_HZ) for listeners of a call.

        Returns None if the dialect does not send them audio.
        """
        ...

    def reflect_output(self, pcm: bytes) -> str | None:
        """Return a message with the audio just played (little-endian int16 at SPEAKER_RATE_HZ), which follows its
        event.
        """
        ...

    def farewell(self, ended: Ended) -> list[str]:
        """Return the final messages of an ended session, unless they were sent already."""
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
