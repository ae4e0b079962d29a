"""Deadlines of an answer: until its first token, then from each token to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.errors import Stalled

T = TypeVar("T")


class Patience:
    """The deadlines of one answer. Only time spent waiting counts, not time in which the reader is busy.

    Args:
        first_s: Seconds until the first token.
        stall_s: Seconds from each token to the next.
        who: The server, as the subject of the error message.
        now: A monotonic clock in seconds.
    """

    def __init__(self, first_s: float, stall_s: float, who: str, now: Callable[[], float]) -> None:
        self.left_s = first_s
        """Seconds until the next token is late."""
        self._stall_s = stall_s
        self._who = who
        self._now = now
        self._late = f"{who} has not begun its answer within {first_s:g} s."

    def progress(self) -> None:
        """Restart the deadline, because a token has arrived."""
        self.left_s = self._stall_s
        self._late = f"{self._who} began its answer, but has sent nothing more for {self._stall_s:g} s."

    def hurry(self, left_s: float) -> None:
        """Wait at most ``left_s`` seconds from now on."""
        self.left_s = min(self.left_s, left_s)

    async def wait(self, awaited: Awaitable[T]) -> T:
        """Await, and raise Stalled if the next token is late."""
        begun_s = self._now()
        try:
            async with asyncio.timeout(self.left_s):
                return await awaited
        except TimeoutError:
            raise Stalled(self._late) from None
        finally:
            self.left_s = max(0.0, self.left_s - (self._now() - begun_s))
