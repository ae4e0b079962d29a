"""The stream that an exchange brings of a call: all in which ``twilio`` and ``audiosocket`` differ."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from app.transports.disconnect import Disconnect
from engine.core import Pcm

LEAD_S = 0.1
"""Seconds that sending runs ahead of the ear at an exchange that throws nothing away: so much later is an interrupted
answer silent, and so long a hiccup is not heard."""

KEYS = "0123456789*#ABCD"
"""The keys of a telephone."""

RATE_HZ = 8_000
"""Samples a second of every telephone."""


class MediaStream(Protocol):
    """One call at an exchange. The server owns it, and closes it."""

    name: str
    """The exchange's own name of the call, under which it asks later what is to become of it."""

    lead_s: float
    """Seconds that sending runs ahead of the caller's ear."""

    @property
    def way_s(self) -> float:
        """Return how long a sample takes from here to the exchange, and waits there beyond what was sent ahead of its
        time."""
        ...

    @property
    def made_up_s(self) -> float:
        """Return how many seconds of what was received so far are silence that the exchange did not send."""
        ...

    def received(self) -> AsyncGenerator[Pcm | str]:
        """Yield the caller's sound, int16 [samples] at RATE_HZ, and keys, as it comes, until the caller hangs up. A
        piece of no samples says that the call is there still.

        Raises Disconnect where the exchange says what it must not.
        """
        ...

    async def send(self, pcm: Pcm) -> None:
        """Play int16 [samples] at RATE_HZ; waits while the exchange takes nothing. Raises Disconnect where it is
        gone."""

    async def stop(self) -> None:
        """Have the exchange throw away what it has yet to play, if it can. Raises Disconnect where it is gone."""

    async def close(self, disconnect: Disconnect) -> None:
        """Give the call back to the exchange, and say why where it takes that. May be called twice."""
