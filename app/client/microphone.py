"""A simulated microphone: sends 20 ms of audio or silence every 20 ms. ``now`` returns monotonic seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.client.channel import ClientChannel, ClientError
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

PIECE_S = 0.02
PIECE = round(PIECE_S * SPEAKER_RATE_HZ)


class Microphone:
    """A microphone for one speaker at a time; others wait."""

    def __init__(self, channel: ClientChannel, now: Callable[[], float]) -> None:
        self._channel = channel
        self._now = now
        self._taken = asyncio.Lock()
        self._due_s = 0.0  # when the next piece is due

    async def speak(self, pcm: Pcm | bytes | bytearray | memoryview) -> None:
        """Send int16 [samples] at SPEAKER_RATE_HZ, or their little-endian bytes, in real time. Raises ClientError."""
        pcm = _samples(pcm)
        async with self._taken:
            self._due_s = max(self._due_s, self._now())
            for at in range(0, len(pcm), PIECE):
                await self._send(pcm[at : at + PIECE])

    async def be_silent(self, longest_s: float) -> None:
        """Send silence in real time, whenever nobody speaks, for ``longest_s`` seconds in all."""
        silence = np.zeros(PIECE, np.int16)
        self._due_s = max(self._due_s, self._now())
        for _ in range(round(longest_s / PIECE_S)):
            async with self._taken:
                await self._send(silence)

    async def _send(self, piece: Pcm) -> None:
        """Send a piece when it is due. A late piece does not delay the following ones."""
        await asyncio.sleep(max(0.0, self._due_s - self._now()))
        await self._channel.speak(piece)
        self._due_s += PIECE_S


def _samples(pcm: Any) -> Pcm:
    """Return 16-bit PCM as an array. Raises ClientError for other samples."""
    if isinstance(pcm, bytes | bytearray | memoryview):
        data = bytes(cast("memoryview", pcm))
        if len(data) % 2:
            raise ClientError(f"pcm has {len(data)} bytes, but a sample has 2: send whole samples")
        return np.frombuffer(data, "<i2")
    if not isinstance(pcm, np.ndarray):
        raise ClientError(f"pcm must be int16 [samples] or bytes of 16-bit PCM, not {type(pcm).__name__}")
    array = cast("NDArray[Any]", pcm)
    if array.dtype != np.int16 or array.ndim != 1:
        found = f"{array.dtype} {list(array.shape)}"
        raise ClientError(f"pcm must be int16 [samples] or bytes of 16-bit PCM, not {found}; convert the samples")
    return array
