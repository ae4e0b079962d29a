"""The fleets that run the stages of one engine: its own, and those that it shares with other engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from engine.control.changes import Changes
from engine.control.fleet import Fleet, Launcher
from engine.control.hop import Pool
from engine.control.replica_info import ReplicaInfo
from engine.control.shared_fleet import SharedFleet
from engine.deployment.config import EngineSpec
from engine.errors import RequestError, plain


class Fleets:
    """The workers of one engine. ``start`` returns when every stage has its replicas.

    ``shared`` has the fleets of the stages that other engines use too. ``label`` is the label of its own fleet.
    """

    def __init__(self, spec: EngineSpec, launcher: Launcher, shared: Mapping[str, SharedFleet], label: str) -> None:
        of_own = ((worker, tuple(name for name in worker.stages if name not in shared)) for worker in spec.workers)
        workers = tuple(replace(worker, stages=stages) for worker, stages in of_own if stages)
        self.own = Fleet(replace(spec, workers=workers), launcher, label)
        self._changes = Changes(self.own, workers)
        self._shared = shared
        self._label = label
        self._stages = tuple(stage.name for stage in spec.stages)

    async def start(self) -> None:
        """Start the workers that do not run yet. Raises the EngineError that prevents it; the caller then closes."""
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self.own.start(), name="start:own")
                for fleet in dict.fromkeys(self._shared.values()):
                    starting.create_task(fleet.enter(self, self._label), name="start:shared")
        except BaseExceptionGroup as group:
            error = plain(group)
            raise error from error.__cause__

    async def close(self) -> None:
        """Stop the workers that no other engine uses. May be called twice."""
        async with asyncio.TaskGroup() as closing:
            closing.create_task(self.own.close(), name="close:own")
            for fleet in dict.fromkeys(self._shared.values()):
                closing.create_task(fleet.leave(self), name="close:shared")

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools of the engine's stages, in the order of the pipeline."""
        pools = ((name, self._of(name).fleet.pools.get(name)) for name in self._stages)
        return {name: pool for name, pool in pools if pool is not None}

    def labelled(self, stage: str) -> str:
        """Return a stage's name with the label of its fleet, which is unique among all engines."""
        return self._of(stage).fleet.labelled(stage)

    def replicas(self) -> list[ReplicaInfo]:
        """Return the state of every replica of the engine's stages, in the order of the pipeline."""
        running = dict.fromkeys(self._of(name) for name in self._stages)
        infos = [
            info
            for changes in running
            for info in changes.fleet.replicas()
            if info.stage in self._stages and self._of(info.stage) is changes
        ]
        return sorted(infos, key=lambda info: self._stages.index(info.stage))

    async def scale(self, stage: str, count: int) -> None:
        """Scale a stage, by its labelled name. Raises RequestError."""
        names = {self.labelled(name): name for name in self._stages}
        if stage not in names:
            raise RequestError(f"there is no stage {stage!r:.60} to scale; there are {', '.join(names)}")
        await self._of(names[stage]).scale(names[stage], count)

    async def restart(self) -> None:
        """Replace the workers one after another. Of several engines, the first one replaces shared workers."""
        await self._changes.restart()
        for fleet in dict.fromkeys(self._shared.values()):
            if fleet.changes is not None and fleet.users[0] is self:
                await fleet.changes.restart()

    def _of(self, stage: str) -> Changes:
        shared = self._shared.get(stage)
        return self._changes if shared is None or shared.changes is None else shared.changes
