"""The slots of a worker's stages that no request holds. Knows no stage and no step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


class FreeSlots:
    """``counts`` are how many slots each stage has, by its name."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._free = {name: _numbers(count) for name, count in counts.items()}

    @property
    def counts(self) -> dict[str, int]:
        """Return how many slots of each stage are free."""
        return {name: numbers.qsize() for name, numbers in self._free.items()}

    async def take(self, name: str) -> int:
        """Take a stage's slot, as soon as one is free."""
        return await self._free[name].get()

    def release(self, name: str, slot: int) -> None:
        """Give a slot back. Never waits."""
        self._free[name].put_nowait(slot)


def _numbers(n: int) -> asyncio.LifoQueue[int]:
    """The numbers below n, the smallest on top."""
    numbers: asyncio.LifoQueue[int] = asyncio.LifoQueue()
    for number in reversed(range(n)):
        numbers.put_nowait(number)
    return numbers
