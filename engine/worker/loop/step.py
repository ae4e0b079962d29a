"""One step of a stage: its results and its times; its deadline; the requests in one that a thread takes.

Knows no loop and no thread.
"""

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
"""Seconds that a step of a blocking stage may take where the stage gives no other deadline."""


class Computed(msgspec.Struct, frozen=True):
    """The results that a step gave its requests, and when it began and ended (monotonic seconds)."""

    results: Results
    began_s: float
    ended_s: float

    @property
    def broke(self) -> bool:
        """Whether the stage broke while it computed, for all or for one of them."""
        broken = [one for one in self.results if isinstance(one, StageFailed | BatchLost)]
        return any(not isinstance(one, OutOfMemory) for one in broken)


@dataclass(frozen=True, slots=True)
class StepUnderWay:
    """A step in a blocking stage's thread: who is in it, and the slots that were given up meanwhile."""

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
    """Step these requests. It raises nothing that a stage can raise. ``beside`` are stages on the same device: what
    they remember gives way where memory is short."""
    began_s = clock()
    results = _results(stage, reqs, beside)
    return Computed(results, began_s, clock())


def _results(stage: Stage, reqs: Sequence[StageRequest], beside: Sequence[Stage]) -> Results:
    """Step, and return the results. Where a step of several requests breaks, nobody knows whose fault that is, nor the
    state that it left: each begins again behind what it has given, and alone."""
    try:
        results = stage.step(reqs)
        if len(results) != len(reqs):
            raise ValueError(f"{len(results)} results for {len(reqs)} requests")
    except Exception as error:  # noqa: BLE001 - whatever a model raises ends a request, never the loop
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
    """Return how long a step of a blocking stage may take (s): what the stage says, or DEADLINE_S."""
    try:
        within_s = getattr(stage, "deadline_s", _default)(reqs)
        if not 0 < within_s < math.inf:
            raise ValueError(f"a step cannot have a deadline of {within_s} s")
    except Exception:
        log.exception("the stage %s tells no deadline of its step, which may take %g s", stage.info.name, DEADLINE_S)
        return DEADLINE_S
    return within_s


def _default(reqs: Sequence[StageRequest]) -> float:
    return DEADLINE_S
