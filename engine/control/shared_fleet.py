"""A fleet that several engines use: started by the first one that enters, closed when the last one has left."""

from __future__ import annotations

import asyncio

from engine.control.changes import Changes
from engine.control.fleet import Fleet, Launcher
from engine.deployment.config import EngineSpec
from engine.deployment.registry import load
from engine.deployment.sharing import SharedWorkers
from engine.errors import EngineError, error_of


def launcher_of(spec: EngineSpec) -> Launcher:
    """Return a deployment's launcher. Raises ConfigError for an unknown one."""
    return load("engine.control.launchers", spec.launcher, "LAUNCHER")(spec.cluster)


class SharedFleet:
    """The workers that several engines have in common."""

    def __init__(self, workers: SharedWorkers) -> None:
        self.changes: Changes | None = None
        """None while the workers do not run."""
        self.users: list[object] = []
        """The engines that use the workers, in the order in which they entered."""
        self._workers = workers
        self._failure: EngineError | None = None
        self._refused = set[str]()
        """The deployments that have received the failure. If one comes again, the workers are tried again."""
        self._turn = asyncio.Lock()

    async def enter(self, user: object, label: str) -> None:
        """Start the workers unless they run already. ``label`` is the deployment of this engine.

        Raises the EngineError that prevents the start, or that prevented it and that this deployment does not know yet.
        """
        async with self._turn:
            if self._failure is not None and label not in self._refused:
                self._refused.add(label)
                raise error_of(self._failure.code, str(self._failure))
            if self.changes is None:
                self.changes = await self._started(label)
            self.users.append(user)

    async def leave(self, user: object) -> None:
        """Stop the workers if no other engine uses them. May be called twice, and without ``enter``."""
        if user not in self.users:
            return  # without waiting for another engine's start
        self.users.remove(user)
        async with self._turn:
            if not self.users and self.changes is not None:
                fleet = self.changes.fleet
                self.changes = None
                await fleet.close()

    async def _started(self, label: str) -> Changes:
        self._failure = None
        spec = self._workers.spec
        fleet = Fleet(spec, launcher_of(spec), "+".join(self._workers.users))
        try:
            await fleet.start()
        except BaseException as error:
            await fleet.close()
            if isinstance(error, EngineError):
                self._failure = error
                self._refused = {label}
            raise
        return Changes(fleet, spec.workers)
