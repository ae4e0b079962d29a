"""Start what the spec describes, open requests, close. The public face of the engine; no tensor and no socket here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from engine.catalogue import check_here
from engine.chunk import Chunk
from engine.config import EngineSpec
from engine.control.changes import Changes
from engine.control.chunks import Chunks
from engine.control.fleet import Fleet, Launcher
from engine.control.orchestrator import Orchestrator
from engine.control.replica import ReplicaInfo
from engine.core import ModelInfo, Request
from engine.describe import written_out
from engine.errors import StageUnavailable
from engine.pipeline import Pipeline
from engine.registry import load


class Engine:
    """``async with Engine(spec) as engine:`` starts the workers and waits until every one is warm."""

    def __init__(self, spec: EngineSpec) -> None:
        """Raises ConfigError for a deployment that cannot be."""
        if spec.launcher != "ray" and spec.cluster.listen is None:  # else they may lie on other machines
            check_here(stage.weights for stage in spec.stages if stage.weights)
        self.spec = spec = written_out(spec)
        self._launcher: Launcher = load("engine.control.launchers", spec.launcher, "Launcher")(spec.cluster)
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
        """Return the model that is loaded. Raises StageUnavailable before the start."""
        return self._pipeline.model

    @property
    def ready(self) -> bool:
        """Whether every stage has a replica that takes requests."""
        return self._started is not None and bool(self._started.pools) and not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The stages of which no replica takes requests now; lost ones are being started again."""
        return tuple(name for name, pool in self._fleet.pools.items() if not pool.slots)

    @property
    def unavailable(self) -> dict[str, str]:
        """The stages that are up and cannot be had for now, and why: each asks a server that is down."""
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
        """Count, for each stage that a request like this one passes, how many such requests fit its slots, taken or
        not.

        Raises RequestError for one that has no way through the stages.
        """
        infos = [self._pipeline.stages[place] for place in self._pipeline.route(request).stages]
        return {info.name: self._fleet.pools[info.name].slots // info.slots_of(request) for info in infos}

    def replicas(self) -> list[ReplicaInfo]:
        """Every replica of every stage, and how it gets on."""
        return self._fleet.replicas()

    async def scale(self, stage: str, count: int) -> None:
        """Have ``count`` replicas of a stage, and of the stages that share its workers.

        Returns when those that were missing are ready and those that were too many have ended what they had. Raises
        RequestError for what the deployment cannot have.
        """
        await self._changes.scale(stage, count)

    async def restart(self) -> None:
        """Replace every worker, one after the other, without dropping a request."""
        await self._changes.restart()

    def open(self, request: Request, inputs: AsyncIterator[Chunk] | None = None) -> AbstractAsyncContextManager[Chunks]:
        """The answer to a request while the block lasts; leaving it is the abort.

        For a ``live`` request, ``inputs`` are the user's ``audio`` chunks, which end with the turn. The
        iterator raises one EngineError if the request fails; everything it held is freed by then.
        """
        return self._orchestrator.open(request, inputs)

    @property
    def _changes(self) -> Changes:
        if self._changing is None:
            raise StageUnavailable("the engine has not been started")
        return self._changing

    @property
    def _pipeline(self) -> Pipeline:
        if self._fleet.pipeline is None:
            raise StageUnavailable("the engine has not been started")
        return self._fleet.pipeline

    @property
    def _fleet(self) -> Fleet:
        if self._started is None:
            raise StageUnavailable("the engine has not been started")
        return self._started
