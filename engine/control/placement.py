"""The placements of a deployment, each for one worker at a time, and the protocol of launchers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from engine.control.join_listener import JoiningWorker
from engine.control.replica import RemoteWorker
from engine.deployment.config import WorkerSpec
from engine.errors import RequestError
from engine.ipc import messages

MOST_JOINING = 1024  # names are kept for workers that join again, so their number needs a bound


class Launcher(Protocol):
    """Starts and stops workers in one kind of place: as processes, in this process, or on a cluster."""

    async def start(self, task: messages.Task, worker: RemoteWorker) -> None: ...

    async def stop(self, worker: RemoteWorker) -> None: ...


@dataclass(eq=False, slots=True)
class Placement:
    """A place for one worker at a time. Its name stays the same; its workers are numbered."""

    name: str
    spec: WorkerSpec
    device: str
    launcher: Launcher
    host: int | None = None
    """The index of its entry in ``workers:``; None for a worker that joined over the network."""
    replica: int = 0
    """The index of its replica within that entry, from 0."""
    worker: RemoteWorker | None = None
    wanted: bool = True
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a worker is started for it, so that only one is."""


class JoiningWorkers:
    """Placements of workers that join from other machines. A worker that joins again gets the same name."""

    def __init__(self, workers: Sequence[WorkerSpec], placements: Mapping[str, Placement]) -> None:
        self._workers = workers
        self._placements = placements
        self._names: dict[str, str] = {}

    def placement(self, joining: JoiningWorker) -> Placement:
        """Return a placement for a joining worker. Raises RequestError if no entry of ``workers:`` has its stages."""
        wanted, device = set(joining.join.stages), joining.join.device
        spec = next((worker for worker in self._workers if wanted and wanted <= set(worker.stages)), None)
        if spec is None:
            known = "; ".join(", ".join(worker.stages) for worker in self._workers)
            raise RequestError(
                f"no worker of this deployment hosts {', '.join(joining.join.stages) or 'no stage'}; there are {known}"
            )
        stages = tuple(stage for stage in spec.stages if stage in wanted)
        return Placement(self._name(joining.join.key), replace(spec, stages=stages, resources={}), device, joining)

    def _name(self, key: str) -> str:
        if key not in self._names and len(self._names) >= MOST_JOINING:  # reuse the oldest name without a worker
            gone = next((one for one, name in self._names.items() if name not in self._placements), None)
            if gone is None:
                raise RequestError(f"the maximum of {MOST_JOINING} joined workers is reached")
            self._names[key] = self._names.pop(gone)
        return self._names.setdefault(key, f"guest{len(self._names)}")
