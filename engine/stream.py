"""Streams of chunks, and functions that reshape them.

A Stream is bounded, has one reader, and ends or fails exactly once. This module does not look into the chunks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from engine.chunk import Chunk, bytes_of

Taken = Callable[[], None]


class Stream:
    """A bounded channel of chunks between two tasks, in order.

    - ``send`` waits while ``depth`` chunks are unread: this is the back-pressure.
    - ``put`` never waits and may exceed the bound. It is for producers that limit themselves, either by checking
      ``room`` or by counting ``taken`` callbacks: each is called once, when its chunk is read or dropped.
    - ``close`` and ``fail`` never wait and may be called twice. Chunks that were sent before can still be read.
    - ``drop`` is called by the reader and discards unread chunks.

    The reader is either a task that iterates, or a callback (``set_reader``) that calls ``take``. Cancelling a reader
    loses no unread chunk.
    """

    def __init__(self, depth: int = 32) -> None:
        self.depth = depth
        self._chunks: deque[tuple[Chunk, Taken | None]] = deque()
        self._ended = False
        self._error: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None
        self._callback: Callable[[], None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def room(self) -> int:
        """The number of chunks that can be added without exceeding ``depth``; may be negative."""
        return self.depth - len(self._chunks)

    @property
    def ended(self) -> bool:
        """Whether no further chunks will come. Some may still be unread."""
        return self._ended

    async def send(self, chunk: Chunk) -> None:
        """Append a chunk, waiting for room. If the stream has ended, its reader is gone and the chunk is dropped."""
        while self.room <= 0 and not self._ended:
            waiter = asyncio.get_running_loop().create_future()
            self._writers.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_writers()  # pass the turn on to the next writer, if this one had it
                raise
        self.put(chunk)

    def put(self, chunk: Chunk, taken: Taken | None = None) -> None:
        """Append a chunk without waiting. ``taken`` is called once, when the chunk is read or dropped."""
        if not self._ended:
            self._chunks.append((chunk, taken))
            self._wake_reader()
        elif taken is not None:
            taken()

    def set_reader(self, reader: Callable[[], None] | None) -> None:
        """Call ``reader`` now, after each new chunk, and at the end of the stream; None removes the callback."""
        self._callback = reader
        if reader is not None:
            reader()

    def close(self) -> None:
        self._ended = True
        self._wake_reader()
        self._wake_writers()

    def drop(self) -> None:
        """Close the stream and discard unread chunks, because the reader is gone."""
        self.close()
        while self.take() is not None:
            pass

    async def aclose(self) -> None:
        """Do the same as ``drop``, for ``contextlib.aclosing``."""
        self.drop()

    def fail(self, error: BaseException) -> None:
        """End the stream with an error, which the reader gets after all chunks that were sent before."""
        if not self._ended:
            self._error = error
            self.close()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._take()

    def take(self) -> Chunk | None:
        """Return the next chunk without waiting; None if there is none."""
        return self._take() if self._chunks else None

    def _take(self) -> Chunk:
        chunk, taken = self._chunks.popleft()
        self._wake_writers()
        if taken is not None:
            taken()
        return chunk

    def _wake_reader(self) -> None:
        if self._callback is not None:
            self._callback()
        elif self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writers(self) -> None:
        while self._writers and (self._ended or self.room > 0):
            waiter = self._writers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if not self._ended:
                    return


class ReplayBuffer:
    """A stream that can be read again from its beginning, until more than ``most_bytes`` have been read.

    It is read by callbacks: reading never waits.
    """

    def __init__(self, source: Stream, most_bytes: int) -> None:
        self.source = source
        self._bytes_free = most_bytes
        self._kept: list[Chunk] = []
        self._next = 0

    @property
    def whole(self) -> bool:
        """Whether everything that was read is still stored."""
        return self._bytes_free >= 0

    @property
    def ended(self) -> bool:
        """Whether everything has been read and no further chunks will come."""
        return self.source.ended and not self.source and self._next == len(self._kept)

    def take(self) -> Chunk | None:
        """Return the next chunk without waiting; None if there is none."""
        if self._next < len(self._kept):
            self._next += 1
            return self._kept[self._next - 1]
        chunk = self.source.take()
        if chunk is not None and self.whole:
            self._bytes_free -= bytes_of(chunk)
            self._kept.append(chunk)
            self._next += 1
            if not self.whole:
                self._kept.clear()
                self._next = 0
        return chunk

    def rewind(self) -> None:
        self._next = 0


@asynccontextmanager
async def closing(chunks: AsyncIterator[Chunk]) -> AsyncGenerator[AsyncIterator[Chunk]]:
    """Close a stream or a generator when the block is left. Other iterators need no closing."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, Stream | AsyncGenerator):
            await chunks.aclose()


async def of(chunks: Iterable[Chunk]) -> AsyncGenerator[Chunk]:
    """Yield the given chunks, as an asynchronous generator."""
    for chunk in chunks:
        yield chunk


async def windows(
    chunks: AsyncIterator[Chunk],
    size: Callable[[int], int],
    hurry: Callable[[], bool] = lambda: False,
    skip: int = 0,
) -> AsyncGenerator[list[Any]]:
    """Group chunks: group ``n`` (from 0) has ``size(n)`` chunks. It has fewer if ``hurry()`` is true, or at the end.

    The first ``skip`` chunks are left out.
    """
    held: list[Any] = []
    count = 0
    async for chunk in chunks:
        if skip:
            skip -= 1
            continue
        held.append(chunk)
        if len(held) >= size(count) or hurry():
            yield held
            held, count = [], count + 1
    if held:
        yield held
