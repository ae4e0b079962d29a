"""Scaling and rolling restarts of a running fleet, one change at a time. No request is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from engine.control.fleet import Fleet
from engine.control.placement import Placement
from engine.deployment.config import WorkerSpec
from engine.errors import EngineError, RequestError, StageUnavailable


class Changes:
    """The changes that a fleet supports. Each method returns when its change is complete."""

    def __init__(self, fleet: Fleet, workers: Sequence[WorkerSpec]) -> None:
        self.fleet = fleet
        self._workers = workers
        self._one = asyncio.Lock()  # concurrent changes would count each other's workers

    async def scale(self, stage: str, count: int) -> None:
        """Scale a stage of the fleet, and the stages that share its workers, to ``count`` replicas.

        Missing replicas are started, surplus ones drained. Raises RequestError if the deployment does not allow it.
        """
        host = self._host(stage, count)
        await self._do(lambda: self._scale(host, count))

    async def restart(self) -> None:
        """Replace the workers one after another: each is drained once its successor is ready.

        Workers that joined from other machines are left alone: restart them there.
        """
        await self._do(self._restart)

    async def _do(self, change: Callable[[], Awaitable[None]]) -> None:
        """Run a change as a task of the fleet, so that it also goes on if its caller is cancelled."""
        errors: list[EngineError | OSError] = []

        async def guarded() -> None:
            try:
                async with self._one:
                    await change()
            except (EngineError, OSError) as error:
                errors.append(error)

        task = self.fleet.spawn(guarded(), "change")
        await asyncio.wait([task])
        if task.cancelled():
            raise StageUnavailable("the engine is closing")
        if errors:
            raise errors[0]

    def _host(self, stage: str, count: int) -> int:
        """Return the index of the entry of ``workers:`` that hosts a stage.

        Raises RequestError if it cannot have ``count`` replicas.
        """
        host = next(i for i, worker in enumerate(self._workers) if stage in worker.stages)
        if not 1 <= count <= self._workers[host].most:
            raise RequestError(f"{stage} can have from 1 to {self._workers[host].most:g} replicas, not {count}")
        return host

    async def _scale(self, host: int, count: int) -> None:
        ours = [placement for placement in self.fleet.placements.values() if placement.host == host]
        for replica in sorted(set(range(count)) - {placement.replica for placement in ours}):
            await self._add(host, replica)
        for placement in [placement for placement in ours if placement.replica >= count]:
            await self._remove(placement)

    async def _add(self, host: int, replica: int) -> None:
        placement = self.fleet.placement(host, replica)
        try:
            await self.fleet.begin(placement)
        except BaseException:
            del self.fleet.placements[placement.name]
            raise

    async def _remove(self, placement: Placement) -> None:
        placement.wanted = False
        if placement.worker is not None:
            await self.fleet.retire(placement.worker)
        del self.fleet.placements[placement.name]

    async def _restart(self) -> None:
        for placement in [placement for placement in self.fleet.placements.values() if placement.host is not None]:
            async with placement.filling:
                if (before := placement.worker) is None:
                    continue  # a successor is starting already
                await self.fleet.begin(placement)
            await self.fleet.retire(before)
