"""The engine's slots that answers over HTTP may hold: a share of each stage's. The others are left for who is talking.

An answer over HTTP is made as fast as the engine can, and one is followed by the next; a session needs a slot the
moment its user stops speaking. So HTTP waits in a line, first come first served, and sessions do not wait for it.
Knows no route and no engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

Slots = Callable[[], Mapping[str, int]]
"""A function that returns, for each stage that a request passes, how many requests like it the stage has slots for
now."""


class Places:
    """``wait_s`` is how long one may wait for a place; ``share`` is the part of each stage's slots, one at least."""

    def __init__(self, wait_s: float, share: float) -> None:
        self._wait_s = wait_s
        self._share = share
        self._held = Counter[str]()
        self._line: deque[asyncio.Event] = deque()

    @property
    def waiting(self) -> int:
        """The number of requests in the line."""
        return len(self._line)

    @asynccontextmanager
    async def hold(self, slots: Slots, patient: bool = False) -> AsyncGenerator[None]:
        """A place at every stage that ``slots`` names, while the block lasts. Raises TimeoutError for one who is not
        ``patient``."""
        stages = await self._turn(slots, None if patient else self._wait_s)
        self._held.update(stages)
        self._call()  # there may be room for the next one, too
        try:
            yield
        finally:
            self._held.subtract(stages)
            self._call()

    async def _turn(self, slots: Slots, wait_s: float | None) -> tuple[str, ...]:
        """Wait until it is ours, and there is room at each stage; which those are."""
        turn = asyncio.Event()
        self._line.append(turn)
        try:
            async with asyncio.timeout(wait_s):
                while not (self._line[0] is turn and self._room(found := slots())):
                    turn.clear()
                    await turn.wait()
            return tuple(found)
        finally:
            self._line.remove(turn)
            self._call()  # its turn, if it did not take it, goes to the next

    def _room(self, slots: Mapping[str, int]) -> bool:
        return all(self._held[stage] < max(1, int(self._share * number)) for stage, number in slots.items())

    def _call(self) -> None:
        """Have the first in line look whether it is its turn."""
        if self._line:
            self._line[0].set()
