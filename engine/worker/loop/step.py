"""One step of a stage: its results, its duration and its deadline."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from engine.chunk import Chunk
from engine.errors import BatchLost, EngineError, OutOfMemory, StageFailed
from engine.worker.loop.memory_shortage import ran_out
from engine.worker.loop.role_group import RoleGroup
from engine.worker.loop.run import Run
from engine.worker.out_of_memory import out_of_memory
from engine.worker.stage import Stage, failed
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)

Stepping = tuple[Run, RoleGroup, StageRequest]
Results = Sequence[Sequence[Chunk] | EngineError]

DEADLINE_S = 10.0
"""Maximum seconds of a blocking stage's step, unless the stage gives its own deadline."""


class Computed(msgspec.Struct, frozen=True):
    """The results of a step for each of its requests, and its start and end in monotonic seconds."""

    results: Results
    began_s: float
    ended_s: float

    @property
    def broke(self) -> bool:
        """Whether the stage failed for at least one of the requests, other than by a lack of memory."""
        broken = [one for one in self.results if isinstance(one, StageFailed | BatchLost)]
        return any(not isinstance(one, OutOfMemory) for one in broken)


@dataclass(frozen=True, slots=True)
class StepUnderWay:
    """A running step of a blocking stage: its requests, and the slots that were released meanwhile."""

    batch: list[Stepping]
    released: list[int] = field(default_factory=list[int])

    @property
    def runs(self) -> list[str]:
        return [run.id for run, _, _ in self.batch]

    def holds(self, slot: int) -> bool:
        return any(req.slot == slot for _, _, req in self.batch)


def compute(
    stage: Stage, reqs: Sequence[StageRequest], clock: Callable[[], float], beside: Sequence[Stage] = ()
) -> Computed:
    """Step these requests. Errors of the stage become results.

    ``beside`` are the stages on the same device. If memory runs out, their prefix caches are cleared.
    """
    began_s = clock()
    results = _results(stage, reqs, beside)
    return Computed(results, began_s, clock())


def _results(stage: Stage, reqs: Sequence[StageRequest], beside: Sequence[Stage]) -> Results:
    """Return the results of a step.

    If a step of several requests fails, the cause and the stage's state are unknown. Each request is then retried
    alone, after its delivered output.
    """
    try:
        results = stage.step(reqs)
        if len(results) != len(reqs):
            raise ValueError(f"{len(results)} results for {len(reqs)} requests")
    except Exception as error:  # noqa: BLE001 - an error in a model ends a request, never the loop
        if out_of_memory(error):
            return ran_out(stage, reqs, error, beside)
        requests = list(dict.fromkeys(req.request.id for req in reqs))
        broken = failed(stage.info.name, ", ".join(requests), error)
        return [BatchLost(str(broken)) if len(requests) > 1 else broken] * len(reqs)
    short = {n: one for n, one in enumerate(results) if isinstance(one, OutOfMemory)}
    if not short:
        return results
    cause = next(iter(short.values())).__cause__
    ends = dict(zip(short, ran_out(stage, [reqs[n] for n in short], cause, beside), strict=True))
    return [ends.get(n, one) for n, one in enumerate(results)]


def deadline_s(stage: Stage, reqs: Sequence[StageRequest]) -> float:
    """Return the maximum seconds of a blocking stage's step: the stage's own deadline, or DEADLINE_S."""
    try:
        within_s = getattr(stage, "deadline_s", _default)(reqs)
        if not 0 < within_s < math.inf:
            raise ValueError(f"a step cannot have a deadline of {within_s} s")
    except Exception:
        log.exception("the stage %s gave no valid deadline; its step may take %g s", stage.info.name, DEADLINE_S)
        return DEADLINE_S
    return within_s


def _default(reqs: Sequence[StageRequest]) -> float:
    return DEADLINE_S
