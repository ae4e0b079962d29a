"""A dialect: the words in which one API's clients and the session understand each other. Realtime is one of them.

A dialect decodes what a client says to client events, and encodes server events. It may remember what it said, so each
session has one of its own; Realtime's is stateless, and one serves all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from app.realtime.protocol import from_wire, to_wire
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.server_events import ServerEvent


class Dialect(Protocol):
    """The dialect of one session, and of all its channels."""

    def decode(self, text: str) -> Received:
        """Decode what the client said, or a Refusal in its place. Never raises for what a client sends."""
        ...

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        """Return the texts of an event, each with a number where the client counts them."""
        ...


class Realtime:
    """The OpenAI Realtime GA protocol."""

    def decode(self, text: str) -> Received:
        return from_wire.decode(text)

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        return to_wire.encode(event, numbers)


REALTIME = Realtime()
