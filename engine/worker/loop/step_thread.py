"""A thread in which a blocking stage steps, so that the worker's event loop is not blocked."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class StepThread(Generic[T]):
    """A thread that runs one step at a time.

    It is a daemon thread: a native call cannot be interrupted, and must not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        # At most one step, and the end marker.
        self._work: queue.SimpleQueue[tuple[Callable[[], T], Callable[[T], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"step:{name}", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], T], returned: Callable[[T], None]) -> None:
        """Start ``work`` in the thread; it must not raise. The event loop then calls ``returned`` with the result."""
        self._work.put((work, returned))

    def close(self) -> None:
        """End the thread once its step has returned. Never waits; may be called twice."""
        self._work.put(None)

    def _serve(self) -> None:
        while (task := self._work.get()) is not None:
            work, returned = task
            result = work()
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(returned, result)
