"""A thread in which a blocking stage is stepped, so that the worker's loop goes on meanwhile. Knows no request."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class StepThread(Generic[T]):
    """One thread, which is given one step at a time: the next one once the last has returned.

    It is a daemon: a native call cannot be ended, and must not keep a process that is to go.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        # At most one step, and the word to end.
        self._work: queue.SimpleQueue[tuple[Callable[[], T], Callable[[T], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"step:{name}", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], T], returned: Callable[[T], None]) -> None:
        """Do ``work``, which must not raise, and have the event loop call ``returned`` with what it gave."""
        self._work.put((work, returned))

    def close(self) -> None:
        """Let the thread end, once its step has returned. Never waits; may be called twice."""
        self._work.put(None)

    def _serve(self) -> None:
        while (task := self._work.get()) is not None:
            work, returned = task
            result = work()
            with suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                self._loop.call_soon_threadsafe(returned, result)
