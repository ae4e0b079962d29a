"""The media stream of a call: everything in which telephone exchanges differ."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from app.limits.fair_scheduler import LoopTimeBudget
from app.transports.disconnect import Disconnect
from engine.core import Pcm

LEAD_S = 0.1
"""Seconds of audio sent ahead to an exchange that can't discard it.

An interrupted answer stops that much later, and network stalls of that length are inaudible.
"""

KEYS = "0123456789*#ABCD"
"""The keys of a telephone."""

RATE_HZ = 8_000
"""Sample rate of all telephones."""


class MediaStream(Protocol):
    """One call at an exchange. The server owns and closes it."""

    name: str
    """The exchange's name of the call, with which it later asks for the next step."""

    lead_s: float
    """Seconds of audio sent ahead of the caller."""

    loop_time: LoopTimeBudget
    """The call's share of the event loop's time, with its rate limiter. The stream charges what it receives."""

    @property
    def way_s(self) -> float:
        """Return the delay in seconds from here to the exchange and in its queue, beyond the audio sent ahead."""
        ...

    @property
    def made_up_s(self) -> float | None:
        """Return how many seconds of the received audio are silence that the exchange did not send.

        None if the stream does not know of left-out audio, because its packets have no timestamps.
        """
        ...

    def received(self) -> AsyncGenerator[Pcm | str]:
        """Yield the caller's audio (int16 [samples] at RATE_HZ) and keys, until the caller hangs up.

        An empty piece of audio means that the call still exists. Raises Disconnect for invalid input.
        """
        ...

    async def send(self, pcm: Pcm) -> None:
        """Play int16 [samples] at RATE_HZ; waits while the exchange reads nothing. Raises Disconnect if it is gone."""

    async def stop(self) -> None:
        """Make the exchange discard unplayed audio, if it can. Raises Disconnect if it is gone."""

    async def close(self, disconnect: Disconnect) -> None:
        """Return the call to the exchange, with the reason if possible. May be called twice."""
