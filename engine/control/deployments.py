"""Several deployments in one process, whose common stages are loaded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.control.engine import Engine
from engine.control.shared_fleet import SharedFleet
from engine.deployment.config import EngineSpec
from engine.deployment.describe import describe, written_out
from engine.deployment.sharing import sharing
from engine.errors import EngineError


class Deployments:
    """Makes the engine of each deployment. Each engine starts, fails and ends independently of the others.

    A stage with the same definition in several deployments runs on one worker for all of them.
    """

    def __init__(self, specs: Sequence[EngineSpec]) -> None:
        """Find the stages that the deployments share. Invalid deployments share none; their ``engine`` reports why.

        Args:
            specs: The deployments. If there are several, each has a different ``name``.

        Raises:
            ConfigError: Two deployments would use one device.
        """
        self._several = len(specs) > 1
        shared = sharing([written_out(spec) for spec in specs if _is_valid(spec)]) if self._several else {}
        fleets = {workers: SharedFleet(workers) for stages in shared.values() for workers in stages.values()}
        self._fleets: Mapping[str, Mapping[str, SharedFleet]] = {
            name: {stage: fleets[workers] for stage, workers in stages.items()} for name, stages in shared.items()
        }

    def engine(self, spec: EngineSpec) -> Engine:
        """Return the engine of one of the deployments. Raises like ``Engine``."""
        if not self._several:
            return Engine(spec)
        name = str(spec.name)
        return Engine(spec, self._fleets.get(name), name)


def _is_valid(spec: EngineSpec) -> bool:
    try:
        if spec.on_one_machine:
            describe(spec)
        else:
            written_out(spec)
    except EngineError:
        return False
    return True
