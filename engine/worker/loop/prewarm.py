"""Prompts that stages warm up for users who still speak: one for each session, and nobody waits for any.

Knows no stage: what is to be done comes as a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)

MOST = 64
"""The most warm-ups at once: further ones are left out, since they would only hold each other up."""


class Preparing:
    """The warm-ups under way in a worker."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}

    def begin(self, group: asyncio.TaskGroup, id: str, session: str, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside everything else, in the place of what was under way for the session."""
        if session in self._tasks:
            self._tasks.pop(session)[1].cancel()
        if len(self._tasks) >= MOST:
            work.close()
            return
        task = group.create_task(_safe(work), name=f"prepare:{id}")
        self._tasks[session] = id, task
        task.add_done_callback(lambda _: self._over(id, session, work))

    def drop(self, id: str) -> None:
        """Do it no further. Unknown ids are ignored: it may be done."""
        for one, task in self._tasks.values():
            if one == id:
                task.cancel()

    def _over(self, id: str, session: str, work: Coroutine[Any, Any, None]) -> None:
        work.close()  # a task that is cancelled before its first step never awaited it
        if session in self._tasks and self._tasks[session][0] == id:
            del self._tasks[session]


async def _safe(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``; whatever goes wrong with it ends nothing else."""
    try:
        await work
    except Exception:
        log.exception("a prompt could not be warmed up")
