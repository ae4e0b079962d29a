"""Streams of chunks, and the few ways to reshape them.

A Stream is bounded, has one consumer, and ends or fails exactly once. Knows nothing of what the chunks mean.
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
    """A bounded channel of chunks between two tasks.

    Order is kept. ``send`` waits while ``depth`` chunks lie unread: that is the back-pressure. ``put`` never waits
    and may overshoot the bound: it is for producers that count otherwise, like a step that asked ``room`` first, or a
    link whose credit comes back by ``taken``: called once for each chunk, when it is read or dropped.
    ``close`` and ``fail`` never wait, may be called twice, and let what was sent before be read; ``drop`` is the
    reader's end: what lies unread is let go. A reader that is cancelled loses nothing but what it had already taken.
    The reader is a task that iterates, or a callback that ``set_reader`` names and that takes what it can use.
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
        return self.depth - len(self._chunks)

    @property
    def ended(self) -> bool:
        """Whether no more chunks will come; some may still be unread."""
        return self._ended

    async def send(self, chunk: Chunk) -> None:
        """Append, waiting for room. On a stream that has ended the chunk is dropped: its reader is gone."""
        while self.room <= 0 and not self._ended:
            waiter = asyncio.get_running_loop().create_future()
            self._writers.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_writers()  # its turn, if it had come, goes to the next
                raise
        self.put(chunk)

    def put(self, chunk: Chunk, taken: Taken | None = None) -> None:
        if not self._ended:
            self._chunks.append((chunk, taken))
            self._wake_reader()
        elif taken is not None:
            taken()

    def set_reader(self, reader: Callable[[], None] | None) -> None:
        """Call ``reader`` now, and whenever a chunk has come or the stream has ended; None: call nobody any more."""
        self._callback = reader
        if reader is not None:
            reader()

    def close(self) -> None:
        self._ended = True
        self._wake_reader()
        self._wake_writers()

    def drop(self) -> None:
        """The reader has gone: close, and forget what it left."""
        self.close()
        while self.take() is not None:
            pass

    async def aclose(self) -> None:
        """The same as ``drop``, for ``aclosing``."""
        self.drop()

    def fail(self, error: BaseException) -> None:
        """End with an error, which the reader meets after what was sent before."""
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
        """The next chunk if one lies there, without waiting."""
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
    """A stream that can be read again from its beginning, as long as what was read takes no more than ``most_bytes``.

    Its readers are callbacks: there is no waiting on it.
    """

    def __init__(self, source: Stream, most_bytes: int) -> None:
        self.source = source
        self._bytes_free = most_bytes
        self._kept: list[Chunk] = []
        self._next = 0

    @property
    def whole(self) -> bool:
        """Whether all that was read is still there."""
        return self._bytes_free >= 0

    @property
    def ended(self) -> bool:
        """Whether all has been read, and no more will come."""
        return self.source.ended and not self.source and self._next == len(self._kept)

    def take(self) -> Chunk | None:
        """The next chunk if one lies there."""
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
    """Close a stream or a generator at the end of the block, read to its end or not; other iterators need none."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, Stream | AsyncGenerator):
            await chunks.aclose()


async def of(chunks: Iterable[Chunk]) -> AsyncGenerator[Chunk]:
    """A stream of chunks that are already there."""
    for chunk in chunks:
        yield chunk


async def windows(
    chunks: AsyncIterator[Chunk],
    size: Callable[[int], int],
    hurry: Callable[[], bool] = lambda: False,
    skip: int = 0,
) -> AsyncGenerator[list[Any]]:
    """Group chunks: the n-th group (from 0) holds ``size(n)`` of them, fewer if ``hurry()`` or at the end.

    Concatenated, the groups are the stream again, without its first ``skip`` chunks.
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
