"""The public interface of the engine: start a deployment, open requests, close it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from engine.chunk import Chunk
from engine.control.chunks import Chunks
from engine.control.fleet import Fleet
from engine.control.fleets import Fleets
from engine.control.orchestrator import Orchestrator
from engine.control.replica_info import ReplicaInfo
from engine.control.shared_fleet import SharedFleet, launcher_of
from engine.core import ModelInfo, Request
from engine.deployment.config import EngineSpec
from engine.deployment.describe import pipeline, written_out
from engine.deployment.model_catalog import check_here
from engine.errors import StageUnavailable
from engine.pipeline import Pipeline


class Engine:
    """A running deployment. ``async with Engine(spec) as engine:`` starts its workers and waits until all are warm."""

    def __init__(self, spec: EngineSpec, shared: Mapping[str, SharedFleet] | None = None, label: str = "") -> None:
        """Check a deployment.

        Args:
            spec: The deployment.
            shared: The stages that run on workers of other engines too; see ``Deployments``.
            label: Distinguishes its stages and workers from those of other engines in this process.

        Raises:
            ConfigError: The deployment is invalid.
            WeightsError: Models are missing on this machine.
        """
        if spec.on_one_machine:
            check_here(name for stage in spec.stages for name in stage.all_weights)
        self.spec = spec = written_out(spec)
        self._launcher = launcher_of(spec)
        self._shared = shared or {}
        self._label = label
        self._orchestrator = Orchestrator([], spec.stall_s)
        self._started: Fleets | None = None
        self._built: Pipeline | None = None

    async def __aenter__(self) -> Self:
        fleets = self._started = Fleets(self.spec, self._launcher, self._shared, self._label)
        try:
            await fleets.start()
            pools = list(fleets.pools.values())
            self._built = pipeline([pool.info for pool in pools], self.spec)
        except BaseException:
            await fleets.close()
            raise
        self._orchestrator = Orchestrator(pools, self.spec.stall_s, self._built)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._fleets.close()

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
        return tuple(name for name, pool in self._fleets.pools.items() if not pool.slots)

    @property
    def unavailable(self) -> dict[str, str]:
        """The stages that run but cannot work, with the reason: the remote server that they call is down."""
        reasons: dict[str, list[str]] = {}
        for replica in self._fleets.replicas():
            reasons.setdefault(replica.stage, []).append(replica.unavailable)
        return {stage: all_of[0] for stage, all_of in reasons.items() if all(all_of)}

    def stats(self) -> dict[str, dict[str, int]]:
        """Return for each stage its replicas, the slots leased, and the requests waiting for one.

        Of several engines, the names of stages begin with a label. Stages that they share have the same name.
        """
        return {
            self._fleets.labelled(name): {"replicas": len(pool), "leased": pool.leased, "waiting": pool.waiting}
            for name, pool in self._fleets.pools.items()
        }

    def slots(self, request: Request) -> dict[str, int]:
        """Return how many requests like this one can run at once, for each stage that it passes, named as in ``stats``.

        Raises:
            RequestError: The pipeline cannot serve the request.
        """
        infos = [self._pipeline.stages[place] for place in self._pipeline.route(request).stages]
        pools = self._fleets.pools
        return {self._fleets.labelled(info.name): pools[info.name].slots // info.slots_of(request) for info in infos}

    def replicas(self) -> list[ReplicaInfo]:
        """Return the state of every replica of every stage, named as in ``stats``."""
        fleets = self._fleets
        return [replace(one, stage=fleets.labelled(one.stage)) for one in fleets.replicas()]

    async def scale(self, stage: str, count: int) -> None:
        """Scale a stage, and the stages that share its workers, to ``count`` replicas.

        It returns when new replicas are ready and surplus ones have finished their requests.

        Args:
            stage: The stage's name, as in ``stats``.
            count: The number of replicas.

        Raises:
            RequestError: The stage is unknown, or the deployment does not allow that many replicas.
        """
        await self._fleets.scale(stage, count)

    async def restart(self) -> None:
        """Replace the workers one after another, without dropping a request.

        Workers that other engines use too are replaced by the engine that started first.
        """
        await self._fleets.restart()

    def open(self, request: Request, inputs: AsyncIterator[Chunk] | None = None) -> AbstractAsyncContextManager[Chunks]:
        """Open a request for the duration of the block. Leaving the block aborts the request.

        Args:
            request: The request.
            inputs: The user's Speech (and VideoFrame) chunks of a ``live`` request. They end with the user's turn.
                With a duplex model (``ModelInfo.duplex``) they end with the conversation; a pause is silence.

        Returns:
            A context manager of the answer's chunks. If the request fails, iterating raises one EngineError. A duplex
            model gives a frame of Audio every ``frame_s``, even if it is silent; its sessions never wait for a slot.
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
    def _pipeline(self) -> Pipeline:
        if self._built is None:
            raise StageUnavailable("the engine has not been started; use it within `async with Engine(…)`")
        return self._built

    @property
    def _fleet(self) -> Fleet:
        """The fleet of the workers that only this engine uses."""
        return self._fleets.own

    @property
    def _fleets(self) -> Fleets:
        if self._started is None:
            raise StageUnavailable("the engine has not been started; use it within `async with Engine(…)`")
        return self._started
