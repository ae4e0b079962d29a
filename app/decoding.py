"""Recordings that come over HTTP, decoded off the event loop and one at a time.

Many uploads at once then cost one core and the memory of one; who waits holds no more than the body that was counted
when it came. Knows no route.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from app.media import decode_audio
from engine.core import Pcm


class Decoding:
    """The one thread of a server that decodes recordings."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "decoding")

    def start(self) -> None:
        """Have the thread ready; else it starts with the first recording."""
        self._thread.submit(int)

    async def samples(self, data: bytes, limit_s: float) -> Pcm:
        """As ``decode_audio``, in its turn. One whose client leaves before that is never decoded. Raises MediaError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, decode_audio, data, limit_s)

    async def close(self) -> None:
        """End the thread, once it is done with what it decodes."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
