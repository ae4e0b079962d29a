"""Recordings that come over HTTP, decoded off the event loop and one at a time.

Many uploads at once then cost one core and the memory of one; who waits holds no more than the body that was counted
when it came. Knows no route.
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
"""Recordings at a time, as many as there are answers over HTTP: the last one waits for the seconds of all of them."""


class Decoding:
    """The one thread of a server that decodes recordings."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "decoding")
        self._line = 0

    def start(self) -> None:
        """Have the thread ready; else it starts with the first recording."""
        self._thread.submit(int)

    async def samples(self, data: bytes, limit_s: float) -> Pcm:
        """Decode as ``decode_audio`` does, in its turn, as long as the client is there.

        Raises MediaError, and Overloaded where LINE recordings are being decoded or wait for it.
        """
        return await self._turn(lambda left: decode_audio(data, limit_s, left))

    async def video(self, data: bytes, limit_s: float, feed: CameraFeed) -> Video:
        """The same as ``decode_video`` does."""
        return await self._turn(lambda left: decode_video(data, limit_s, feed, left))

    async def _turn(self, decode: Callable[[Callable[[], bool]], T]) -> T:
        if self._line >= LINE:
            raise Overloaded(f"{self._line} recordings wait to be decoded; try again soon.")
        left, loop = threading.Event(), asyncio.get_running_loop()
        self._line += 1
        try:
            return await loop.run_in_executor(self._thread, decode, left.is_set)
        finally:
            left.set()
            self._line -= 1

    async def close(self) -> None:
        """End the thread, once it is done with what it decodes."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
