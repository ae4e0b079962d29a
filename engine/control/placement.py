"""The places of a deployment, each filled by one worker at a time, and who runs the workers there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from engine import wire
from engine.config import WorkerSpec
from engine.control.join_listener import JoiningWorker
from engine.control.replica import RemoteWorker
from engine.errors import RequestError

MOST_JOINING = 1024  # places for workers that come by themselves: each keeps its name, so they must be bounded


class Launcher(Protocol):
    """The place where a worker runs, and how it is started there."""

    async def start(self, task: wire.Task, worker: RemoteWorker) -> None: ...

    async def stop(self, worker: RemoteWorker) -> None: ...


@dataclass(eq=False, slots=True)
class Placement:
    """A place that one worker fills at a time. Its name stays, its workers are numbered."""

    name: str
    spec: WorkerSpec
    device: str
    launcher: Launcher
    host: int | None = None
    """The entry of ``workers:`` that it belongs to; None for one that joined by itself, which nobody here starts
    again."""
    replica: int = 0
    """The replica of that entry, from 0."""
    worker: RemoteWorker | None = None
    wanted: bool = True
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a worker is started for it, so that there are never two."""


class JoiningWorkers:
    """Placements of workers that join by themselves, beside the ``placements`` of now. One that joins again has its
    placement again."""

    def __init__(self, workers: Sequence[WorkerSpec], placements: Mapping[str, Placement]) -> None:
        self._workers = workers
        self._placements = placements
        self._names: dict[str, str] = {}

    def placement(self, joining: JoiningWorker) -> Placement:
        """The placement of a worker that joins. Raises RequestError for one that is not wanted here."""
        wanted, device = set(joining.join.stages), joining.join.device
        spec = next((worker for worker in self._workers if wanted and wanted <= set(worker.stages)), None)
        if spec is None:
            known = "; ".join(", ".join(worker.stages) for worker in self._workers)
            raise RequestError(f"no worker here hosts {', '.join(joining.join.stages) or 'nothing'}; they host {known}")
        stages = tuple(stage for stage in spec.stages if stage in wanted)
        return Placement(self._name(joining.join.key), replace(spec, stages=stages, resources={}), device, joining)

    def _name(self, key: str) -> str:
        if key not in self._names and len(self._names) >= MOST_JOINING:  # of who has gone, the first one's is free
            gone = next((one for one, name in self._names.items() if name not in self._placements), None)
            if gone is None:
                raise RequestError(f"{MOST_JOINING} workers have joined already")
            self._names[key] = self._names.pop(gone)
        return self._names.setdefault(key, f"guest{len(self._names)}")
