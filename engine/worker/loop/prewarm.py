"""Stages' preparations for coming requests, such as a prefill, while the users still speak: at most one per session.

No request waits for a preparation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)

MOST = 64
"""Maximum concurrent preparations. Further ones are skipped, because they would only slow each other down."""


class Preparing:
    """The running preparations of a worker."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}

    def begin(self, group: asyncio.TaskGroup, id: str, session: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a preparation. It replaces the session's current one."""
        if session in self._tasks:
            self._tasks.pop(session)[1].cancel()
        if len(self._tasks) >= MOST:
            work.close()
            return
        task = group.create_task(_safe(work), name=f"prepare:{id}")
        self._tasks[session] = id, task
        task.add_done_callback(lambda _: self._over(id, session, work))

    def drop(self, id: str) -> None:
        """Cancel a preparation. Unknown ids are ignored, because a preparation may have ended."""
        for one, task in self._tasks.values():
            if one == id:
                task.cancel()

    def _over(self, id: str, session: str, work: Coroutine[Any, Any, None]) -> None:
        work.close()  # a task that is cancelled before its first step never awaited it
        if session in self._tasks and self._tasks[session][0] == id:
            del self._tasks[session]


async def _safe(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` and log any error."""
    try:
        await work
    except Exception:
        log.exception("warming up a prompt failed")
