"""The choice of the requests that step next. Pure Python: no torch, no clock of its own, no I/O.

Speech has deadlines. A worker that hosts several stages on one device takes the stage of the most urgent request and
fills the rest of the batch with that stage's other ready requests, most urgent first. The classes, in order:

1. listeners about to run dry: what they still have to hear is shorter than two rounds of steps;
2. committed requests that have made no sound yet, in order of arrival; those that came together go together, stage by
   stage, since a batch costs little more than one of them;
3. other listeners, by slack;
4. answers to a turn that may not be over (speculative);
5. prefill of turns still being spoken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from engine.deployment.config import Schedule
from engine.worker.stage_request import StageRequest

HELD_ROUNDS = 4  # rounds that a first sound waits at most for those that came with it
HELD_S = 0.03
"""Seconds from its arrival that a first step waits at most for requests that came with it and are still being read, and
never longer than such a step takes: they would wait for it."""


class Urgency(IntEnum):
    DRY = 0
    SILENT = 1
    LISTENING = 2
    SPECULATIVE = 3
    SPEAKING = 4


@dataclass(slots=True)
class Scheduler:
    """The picker of batches; ``round_s`` is how long one step of every stage takes, measured by the loop.

    ``schedule`` "arrival" is first come, first served, to measure what urgency is worth.
    """

    max_batch: Mapping[str, int]
    schedule: Schedule = "urgency"
    step_s: dict[str, float] = field(default_factory=dict[str, float])
    held_s: list[float] = field(default_factory=list[float])
    """How long the last pick has put off each first step that was ready."""

    @property
    def round_s(self) -> float:
        return sum(self.step_s.values())

    def timed(self, stage: str, took_s: float) -> None:
        """Learn how long a step of a stage takes: quick to rise, slow to fall, so that the estimate is near a p95."""
        known = self.step_s.get(stage, took_s)
        weight = 0.3 if took_s > known else 0.03
        self.step_s[stage] = known + weight * (took_s - known)

    def urgency(self, req: StageRequest, now_s: float) -> tuple[Urgency, float, int]:
        """Smaller is more urgent; of one request, the stage nearest to the sound comes first."""
        listener = req.listener
        if self.schedule == "arrival":
            return Urgency.LISTENING, listener.arrived_s, -req.info.order
        if not listener.committed:
            return Urgency.SPEAKING, listener.arrived_s, -req.info.order
        if listener.speculative:
            return Urgency.SPECULATIVE, listener.arrived_s, -req.info.order
        if listener.started_s is None:
            return Urgency.SILENT, listener.arrived_s, -req.info.order
        slack_s = listener.slack_s(now_s)
        dry = slack_s < 2 * self.round_s
        return (Urgency.DRY if dry else Urgency.LISTENING), slack_s, -req.info.order

    def _holds_s(self, req: StageRequest, now_s: float) -> float:
        """Return how long a first step may be put off for others that are still being read; not above 0: not at all."""
        if req.stepped or self.schedule == "arrival" or self.urgency(req, now_s)[0] != Urgency.SILENT:
            return 0.0
        return req.listener.arrived_s + min(HELD_S, self.step_s.get(req.info.name, 0.0)) - now_s

    def pick(
        self, ready: Iterable[StageRequest], now_s: float, among: Iterable[StageRequest] = ()
    ) -> Sequence[StageRequest]:
        """The next batch: requests at one stage, at most its ``max_batch``; empty if none is ready, or if all are held.

        They are ``among`` all that there are: of those that are not ready, and whose input has all come, the stage is
        still reading it.
        """
        ranked = list(ready)
        held = {req: held_s for req in ranked if not req.stepped and (held_s := self._holds_s(req, now_s)) > 0}
        coming = held and any(req.being_read and self._holds_s(req, now_s) > 0 for req in among)
        self.held_s = list(held.values()) if coming else []
        if coming:
            ranked = [req for req in ranked if req not in held]
        if len(ranked) < 2:
            return ranked
        ranked.sort(key=lambda req: self.urgency(req, now_s))
        stage = self._together(ranked, now_s)
        batch = [req for req in ranked if req.info.name == stage]
        if batch[0].alone:
            return batch[:1]
        batch = [req for req in batch if not req.alone]
        sizes = itertools.accumulate(len(req.together) for req in batch)
        fits = sum(size <= self.max_batch[stage] for size in sizes)
        return batch[: max(fits, 1)]  # a group that is larger than a batch steps alone

    def _together(self, ranked: Sequence[StageRequest], now_s: float) -> str:
        """The most urgent request's stage; among first sounds that of the request furthest back of those that came
        together.

        A request is as far as its stage nearest to the sound that is ready: it is not held up by what comes later.
        """
        first = ranked[0]
        arrived_s = first.listener.arrived_s
        if self.urgency(first, now_s)[0] != Urgency.SILENT or now_s - arrived_s > HELD_ROUNDS * self.round_s:
            return first.info.name
        reached: dict[int, StageRequest] = {}
        for req in ranked:  # of one request, the stage nearest to the sound comes first
            if self.urgency(req, now_s)[0] == Urgency.SILENT:
                if req.listener.arrived_s > arrived_s + self.round_s:
                    break
                reached.setdefault(id(req.listener), req)
        return min(reached.values(), key=lambda req: req.info.order).info.name
