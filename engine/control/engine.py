"""The public interface of the engine: start a deployment, open requests, close it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from engine.chunk import Chunk
from engine.control.changes import Changes
from engine.control.chunks import Chunks
from engine.control.fleet import Fleet, Launcher
from engine.control.orchestrator import Orchestrator
from engine.control.replica_info import ReplicaInfo
from engine.core import ModelInfo, Request
from engine.deployment.config import EngineSpec
from engine.deployment.describe import written_out
from engine.deployment.model_catalog import check_here
from engine.deployment.registry import load
from engine.errors import StageUnavailable
from engine.pipeline import Pipeline


class Engine:
    """A running deployment. ``async with Engine(spec) as engine:`` starts its workers and waits until all are warm."""

    def __init__(self, spec: EngineSpec) -> None:
        """Check a deployment.

        Args:
            spec: The deployment.

        Raises:
            ConfigError: The deployment is invalid.
            WeightsError: Models are missing on this machine.
        """
        if spec.on_one_machine:
            check_here(name for stage in spec.stages for name in stage.all_weights)
        self.spec = spec = written_out(spec)
        self._launcher: Launcher = load("engine.control.launchers", spec.launcher, "LAUNCHER")(spec.cluster)
        self._orchestrator = Orchestrator([], spec.stall_s)
        self._started: Fleet | None = None
        self._changing: Changes | None = None

    async def __aenter__(self) -> Self:
        fleet = self._started = Fleet(self.spec, self._launcher)
        self._changing = Changes(fleet, self.spec.workers)
        try:
            await fleet.start()
        except BaseException:
            await fleet.close()
            raise
        pools = sorted(fleet.pools.values(), key=lambda pool: pool.info.order)
        self._orchestrator = Orchestrator(pools, self.spec.stall_s, fleet.pipeline)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._fleet.close()

    @property
    def model(self) -> ModelInfo:
        """Return the description of the loaded model. Raises StageUnavailable before the start."""
        return self._pipeline.model

    @property
    def ready(self) -> bool:
        """Whether every stage has a replica that accepts requests."""
        return self._started is not None and bool(self._started.pools) and not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The stages without a replica that accepts requests. Lost replicas are being restarted."""
        return tuple(name for name, pool in self._fleet.pools.items() if not pool.slots)

    @property
    def unavailable(self) -> dict[str, str]:
        """The stages that run but cannot work, with the reason: the remote server that they call is down."""
        reasons: dict[str, list[str]] = {}
        for replica in self.replicas():
            reasons.setdefault(replica.stage, []).append(replica.unavailable)
        return {stage: all_of[0] for stage, all_of in reasons.items() if all(all_of)}

    def stats(self) -> dict[str, dict[str, int]]:
        """Return for each stage its replicas, the slots leased, and the requests waiting for one."""
        return {
            name: {"replicas": len(pool), "leased": pool.leased, "waiting": pool.waiting}
            for name, pool in self._fleet.pools.items()
        }

    def slots(self, request: Request) -> dict[str, int]:
        """Return how many requests like this one can run at once, for each stage that it passes.

        Raises:
            RequestError: The pipeline cannot serve the request.
        """
        infos = [self._pipeline.stages[place] for place in self._pipeline.route(request).stages]
        return {info.name: self._fleet.pools[info.name].slots // info.slots_of(request) for info in infos}

    def replicas(self) -> list[ReplicaInfo]:
        """Return the state of every replica of every stage."""
        return self._fleet.replicas()

    async def scale(self, stage: str, count: int) -> None:
        """Scale a stage, and the stages that share its workers, to ``count`` replicas.

        It returns when new replicas are ready and surplus ones have finished their requests.

        Args:
            stage: The stage's name.
            count: The number of replicas.

        Raises:
            RequestError: The stage is unknown, or the deployment does not allow that many replicas.
        """
        await self._changes.scale(stage, count)

    async def restart(self) -> None:
        """Replace the workers one after another, without dropping a request."""
        await self._changes.restart()

    def open(self, request: Request, inputs: AsyncIterator[Chunk] | None = None) -> AbstractAsyncContextManager[Chunks]:
        """Open a request for the duration of the block. Leaving the block aborts the request.

        Args:
            request: The request.
            inputs: The user's Speech (and VideoFrame) chunks of a ``live`` request. They end with the user's turn.

        Returns:
            A context manager of the answer's chunks. If the request fails, iterating raises one EngineError.
        """
        return self._orchestrator.open(request, inputs)

    def prepare(self, request: Request) -> None:
        """Let the model prefill the known part of a prompt while nobody waits for it.

        No request waits for a preparation, except one that continues its prompt. A session's next preparation or
        request replaces it, and requests of other sessions take its slot if no other is free.

        Args:
            request: The request that is expected. Its last user messages need not be complete.
        """
        self._orchestrator.prepare(request)

    @property
    def _changes(self) -> Changes:
        if self._changing is None:
            raise StageUnavailable("the engine has not been started; use it within `async with Engine(…)`")
        return self._changing

    @property
    def _pipeline(self) -> Pipeline:
        if self._fleet.pipeline is None:
            raise StageUnavailable("the engine has not been started; use it within `async with Engine(…)`")
        return self._fleet.pipeline

    @property
    def _fleet(self) -> Fleet:
        if self._started is None:
            raise StageUnavailable("the engine has not been started; use it within `async with Engine(…)`")
        return self._started
