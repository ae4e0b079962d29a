"""Workers as tasks of the server's own process, for tests and embedding. Their steps block the event loop.

A blocking step that never returns cannot be ended: its worker is replaced, and its thread stays until the process ends.
If that step holds the GIL, the server hangs as well.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from engine.control.replica import RemoteWorker
from engine.deployment.config import ClusterSpec
from engine.deployment.registry import load
from engine.errors import ConfigError, EngineError
from engine.ipc import links, messages

log = logging.getLogger(__name__)


class InlineLauncher:
    """A launcher of workers in this process."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._serving: dict[str, asyncio.Task[None]] = {}

    async def start(self, task: messages.Task, worker: RemoteWorker) -> None:
        """Build a worker for a task; it sends Hello on its link. Raises ConfigError."""
        if task.worker.python is not None:
            raise ConfigError(
                "workers[].python: workers in the server's own process cannot use another interpreter; remove the key"
            )
        build = load("engine.worker.process", "stage_loader", "build")
        serve = load("engine.worker.process", "stage_loader", "serve")
        inner: list[Any] = []
        gone = asyncio.Event()

        def receive(message: messages.Message) -> None:
            if isinstance(message, messages.Stop):
                gone.set()
            else:
                inner[0].receive(message)

        worker.link, link = links.local_pair((worker.receive, worker.lost), (receive, gone.set))
        self._serving[worker.id] = asyncio.create_task(
            self._serve((build, serve), task, link, inner, gone), name=worker.id
        )
        await asyncio.sleep(0)

    async def _serve(
        self, parts: tuple[Any, Any], task: messages.Task, link: links.LocalLink, inner: list[Any], gone: asyncio.Event
    ) -> None:
        build, serve = parts
        try:
            built, hello = await asyncio.to_thread(build, task, link.send)
            inner.append(built)
            await serve(built, hello, task, link.send, gone)
        except EngineError as error:
            link.send(messages.Refused(error.code, str(error)))
        except Exception:
            log.exception("the worker %s failed", task.id)
        finally:
            link.close()  # as when a process ends: its requests fail at once

    async def stop(self, worker: RemoteWorker) -> None:
        worker.close()
        serving = self._serving.pop(worker.id, None)
        if serving is not None:
            serving.cancel()
            await asyncio.wait([serving])


LAUNCHER = InlineLauncher
