"""Limits the threads for one kind of work. Waiting work starts even while a step blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadLimiter:
    """Runs at most ``most`` computations at once in the event loop's thread pool. Waiting ones occupy no thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._working = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    async def do(self, compute: Callable[[], T]) -> T:
        """Run a computation when it is its turn. If this call is cancelled before that, it does not run."""
        found: Future[T] = Future()
        with self._lock:
            self._waiting.append((found, compute))
            begins = self._working < self._most
            self._working += begins
        if begins:
            asyncio.get_running_loop().run_in_executor(None, self._work)
        return await asyncio.wrap_future(found)

    def _work(self) -> None:
        while (one := self._next()) is not None:
            found, compute = one
            if not found.set_running_or_notify_cancel():
                continue
            try:
                found.set_result(compute())
            except BaseException as error:  # noqa: BLE001 - any error is passed to the caller
                found.set_exception(error)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._working -= 1
            return None
