"""The line to a listener: how far ahead of him an answer's sound may leave, and at which end it is played.

What a session has to know of its transport, and all it knows of it. Knows no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """``plays``: the server itself plays answers out, in real time, and hears the microphone as a stream.

    Then it knows what was heard, tells when it begins and ends to play, and cuts what was interrupted; otherwise the
    client does these.
    """

    lead_s: float = 1.5
    """How far sending runs ahead of the listener: over a socket it rides out a hiccup, and can still be recalled."""
    packet_s: float = 0.1
    """The most audio in one packet: what goes out after a barge-in was decided is at most this."""
    plays: bool = False
    lag_s: Callable[[], float] = lambda: 0.0
    """How long after a sample has left its listener hears it, at this moment."""
    told_delay: Callable[[float], None] = lambda delay_s: None
    """Takes the client's word for how long what reaches it waits there before it is heard, in seconds."""
    ticket: Callable[[], str] | None = None
    """Makes a new token with which the client may come back to its session; None where it can't."""


SOCKET = Line()
"""A connection on which the client plays what it gets."""
