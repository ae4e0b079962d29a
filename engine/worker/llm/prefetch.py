"""Prefetching of an async generator in a background task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from engine.errors import StageFailed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    error: Exception | None


class Prefetcher(AsyncIterator[T]):
    """Iterates over a generator's items in order; a task fetches them in advance for one reader.

    At most ``most`` items wait for the reader; with 1, the next item is started only after the previous one was taken.
    An error of the generator is raised after the items before it. Call ``aclose`` at the end (twice is allowed): it
    cancels the task and closes the generator.
    """

    def __init__(self, items: AsyncGenerator[T], most: int, name: str) -> None:
        self.begun = asyncio.Event()
        """Set once the first item or the end has arrived."""
        self._items = items
        self._room = asyncio.Semaphore(most)
        self._read: asyncio.Queue[T | _End] = asyncio.Queue()  # bounded by the semaphore
        self._task = asyncio.create_task(self._work(), name=name)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        item = await self._read.get()
        if isinstance(item, _End):
            self._read.put_nowait(item)  # for further calls
            raise item.error or StopAsyncIteration
        self._room.release()
        return item

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            async with aclosing(self._items) as items:
                await self._room.acquire()
                async for item in items:
                    self._give(item)
                    await self._room.acquire()
        except asyncio.CancelledError:
            self._give(_End(StageFailed("The request was cancelled unexpectedly; try again.")))  # by a library
            raise
        except Exception as error:  # noqa: BLE001 - passed on to the reader
            self._give(_End(error))
        else:
            self._give(_End(None))

    def _give(self, item: T | _End) -> None:
        self._read.put_nowait(item)
        self.begun.set()
