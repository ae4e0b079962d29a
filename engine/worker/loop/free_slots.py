"""The free slots of a worker's stages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


class FreeSlots:
    """The free slots of each stage. ``counts`` are the total numbers of slots, by the stage's name."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._free = {name: _numbers(count) for name, count in counts.items()}

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of free slots of each stage."""
        return {name: numbers.qsize() for name, numbers in self._free.items()}

    async def take(self, name: str) -> int:
        """Take a slot of a stage, waiting until one is free."""
        return await self._free[name].get()

    def release(self, name: str, slot: int) -> None:
        """Give a slot back."""
        self._free[name].put_nowait(slot)


def _numbers(n: int) -> asyncio.LifoQueue[int]:
    """Return a stack of the numbers below n, the smallest on top."""
    numbers: asyncio.LifoQueue[int] = asyncio.LifoQueue()
    for number in reversed(range(n)):
        numbers.put_nowait(number)
    return numbers
