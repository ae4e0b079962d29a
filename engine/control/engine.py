"""Start what the spec describes, open requests, close. The public face of the engine; no tensor and no socket here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

from engine.config import EngineSpec, WorkerSpec
from engine.control.orchestrator import Chunks, Orchestrator, Pool
from engine.control.pool import StagePool
from engine.control.replica import RemoteWorker, StageReplica
from engine.core import Chunk, ModelInfo, Request
from engine.errors import EngineError, ReplicaLost, StageUnavailable, plain
from engine.registry import load
from engine.wire import Hello, Task

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Where a worker runs."""

    async def start(self, task: Task, worker: RemoteWorker) -> None: ...

    async def stop(self, worker: RemoteWorker) -> None: ...


class Engine:
    """``async with Engine(spec) as engine:`` starts the workers and waits until every one is warm."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self._launcher: Launcher = load("engine.control.launchers", spec.launcher, "Launcher")()
        self._workers: dict[str, RemoteWorker] = {}
        self._pools: dict[str, Pool] = {}
        self._orchestrator = Orchestrator([], spec.stall_s)
        self._model: ModelInfo | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def model(self) -> ModelInfo:
        """What is loaded. Raises StageUnavailable before the start."""
        if self._model is None:
            raise StageUnavailable("the engine has not been started")
        return self._model

    @property
    def ready(self) -> bool:
        """Whether every stage has a live replica."""
        return bool(self._pools) and all(len(pool) for pool in self._pools.values())

    def stats(self) -> dict[str, dict[str, int]]:
        """For each stage: its replicas, the slots leased, and the requests waiting for one."""
        return {
            name: {"replicas": len(pool), "leased": pool.leased, "waiting": pool.waiting}
            for name, pool in self._pools.items()
        }

    def open(self, request: Request, inputs: AsyncIterator[Chunk] | None = None) -> AbstractAsyncContextManager[Chunks]:
        """The answer to a request while the block lasts; leaving it is the abort.

        For a ``live`` request, ``inputs`` are the user's ``audio`` chunks; their end is the end of his turn. The
        iterator raises one EngineError if the request fails; everything it held is freed by then.
        """
        return self._orchestrator.open(request, inputs)

    async def _start(self) -> None:
        try:
            async with asyncio.timeout(self.spec.start_s), asyncio.TaskGroup() as starting:
                for i, worker in enumerate(self.spec.workers):
                    for replica in range(worker.replicas):
                        starting.create_task(self._start_worker(f"worker{i}.{replica}", worker, replica))
        except TimeoutError:
            raise StageUnavailable(f"the workers were not ready after {self.spec.start_s:g} s") from None
        except BaseExceptionGroup as group:
            error = plain(group)
            if isinstance(error, EngineError):
                raise error from None
            raise EngineError(f"a worker could not be started: {error!r}") from error
        pools = sorted(self._pools.values(), key=lambda pool: pool.info.order)
        self._orchestrator = Orchestrator(pools, self.spec.stall_s)

    async def _start_worker(self, id: str, spec: WorkerSpec, replica: int) -> None:
        worker = self._workers[id] = RemoteWorker(id)
        device = str(spec.devices[replica % len(spec.devices)])
        whole = self.spec
        task = Task(id, whole.model, whole.weights, spec, device, whole.chunks, dict(whole.options))
        await self._launcher.start(task, worker)
        self._join(worker, await worker.hello)

    def _join(self, worker: RemoteWorker, hello: Hello) -> None:
        if not worker.alive:
            raise ReplicaLost(f"the worker {worker.id} ended as soon as it was ready")
        self._model = hello.model
        for info in hello.stages:
            pool = self._pools.setdefault(info.name, StagePool(info, self.spec.balance, self.spec.queue))
            replica = StageReplica(f"{info.name}@{worker.id}", info.name, worker)
            pool.join(replica)
            worker.on_lost.append(lambda pool=pool, replica=replica: pool.leave(replica.id))

    async def _close(self) -> None:
        """Stop every worker, however the others take it."""
        workers = [self._launcher.stop(worker) for worker in self._workers.values()]
        self._workers.clear()
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("a worker could not be stopped", exc_info=result)
