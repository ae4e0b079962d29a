"""A worker's heartbeat, sent from the event loop that runs the steps."""

from __future__ import annotations

import asyncio
import logging

from engine.ipc import messages
from engine.worker.loop.run import Send
from engine.worker.loop.worker import Worker

log = logging.getLogger(__name__)


async def beats(worker: Worker, task: messages.Task, send: Send) -> None:
    """Send heartbeats until cancelled. They come from the loop that runs the steps, so a worker that hangs falls
    silent.

    A heartbeat that fails is skipped.
    """
    while True:
        try:
            send(worker.beat(task.id))
        except Exception:  # an error in counting a queue must not end the heartbeat
            log.exception("sending a heartbeat failed")
        await asyncio.sleep(task.beat_s)
