"""A microphone as the server hears it: 20 ms of sound every 20 ms, or of silence. ``now`` is monotonic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from app.client.channel import ClientChannel
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

PIECE_S = 0.02
PIECE = round(PIECE_S * SPEAKER_RATE_HZ)


class Microphone:
    """A microphone for one voice at a time: a second speaker waits for the first."""

    def __init__(self, channel: ClientChannel, now: Callable[[], float]) -> None:
        self._channel = channel
        self._now = now
        self._taken = asyncio.Lock()
        self._due_s = 0.0  # when the next piece is to leave

    async def speak(self, pcm: Pcm) -> None:
        """Send int16 [samples] at SPEAKER_RATE_HZ at their own pace."""
        async with self._taken:
            self._due_s = max(self._due_s, self._now())
            for at in range(0, len(pcm), PIECE):
                await self._send(pcm[at : at + PIECE])

    async def be_silent(self, longest_s: float) -> None:
        """Send so much silence at its own pace, whenever nobody speaks."""
        silence = np.zeros(PIECE, np.int16)
        self._due_s = max(self._due_s, self._now())
        for _ in range(round(longest_s / PIECE_S)):
            async with self._taken:
                await self._send(silence)

    async def _send(self, piece: Pcm) -> None:
        """The next piece, once those before it have been said; a late one does not hold up the rest."""
        await asyncio.sleep(max(0.0, self._due_s - self._now()))
        await self._channel.speak(piece)
        self._due_s += PIECE_S
