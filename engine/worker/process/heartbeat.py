"""A worker's heartbeat: one message at a time, from the loop that steps. Knows nothing of who judges by it."""

from __future__ import annotations

import asyncio
import logging

from engine.ipc import messages
from engine.worker.loop.run import Send
from engine.worker.loop.worker import Worker

log = logging.getLogger(__name__)


async def beats(worker: Worker, task: messages.Task, send: Send) -> None:
    """Beat for ever. It comes from the loop that steps: one that hangs falls silent.

    A beat that fails is missed, and the next one is tried all the same.
    """
    while True:
        try:
            send(worker.beat(task.id))
        except Exception:  # an error in counting a queue must not end the heartbeat
            log.exception("a heartbeat failed")
        await asyncio.sleep(task.beat_s)
