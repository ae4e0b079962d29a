"""Decoding of recordings from HTTP, off the event loop and one at a time.

Many concurrent uploads then use one core and the memory of one decoder; waiting requests hold only their body. Knows no
route.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.media.audio import decode_audio
from app.media.videos import Video, decode_video
from engine import CameraFeed, Overloaded
from engine.core import Pcm

T = TypeVar("T")

LINE = 16
"""Maximum number of recordings, as many as there are HTTP answers. The last one waits for all the others."""


class Decoding:
    """The decoding thread of a server."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "decoding")
        self._line = 0

    def start(self) -> None:
        """Start the thread in advance."""
        self._thread.submit(int)

    async def samples(self, data: bytes, limit_s: float) -> Pcm:
        """Run ``decode_audio`` in turn, as long as the client is connected.

        Raises MediaError, and Overloaded if LINE recordings are being decoded or wait.
        """
        return await self._turn(lambda left: decode_audio(data, limit_s, left))

    async def video(self, data: bytes, limit_s: float, feed: CameraFeed) -> Video:
        """Run ``decode_video`` in the same way."""
        return await self._turn(lambda left: decode_video(data, limit_s, feed, left))

    async def _turn(self, decode: Callable[[Callable[[], bool]], T]) -> T:
        if self._line >= LINE:
            raise Overloaded(f"{self._line} recordings wait to be decoded; try again later.")
        left, loop = threading.Event(), asyncio.get_running_loop()
        self._line += 1
        try:
            return await loop.run_in_executor(self._thread, decode, left.is_set)
        finally:
            left.set()
            self._line -= 1

    async def close(self) -> None:
        """End the thread after its current work."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
