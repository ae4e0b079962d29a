"""The choice of the requests that step next. Pure Python: no torch, no clock, no I/O.

Speech has deadlines. If a worker hosts several stages on one device, the stage of the most urgent request steps. The
batch is filled with that stage's other ready requests, most urgent first. Order of urgency:

1. frames of duplex sessions that are due. A step of another stage waits if such a frame would be late otherwise;
2. listeners about to run out of audio: they have less than two rounds of steps left;
3. committed requests without any audio yet, in order of arrival. Requests that arrived together step together, stage by
   stage, because a batch costs little more than one request;
4. other listeners, those with the least buffered audio first;
5. speculative answers: the user may go on speaking;
6. prefill during the user's turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from engine.deployment.config import Schedule
from engine.worker.stage_request import StageRequest

HELD_ROUNDS = 4  # maximum rounds for which first audio waits for requests that arrived together with it
HELD_S = 0.03
"""Maximum seconds for which a first step waits for requests that arrived together and are still being read.

It never waits longer than such a step takes.
"""


class Urgency(IntEnum):
    FRAME = 0
    DRY = 1
    SILENT = 2
    LISTENING = 3
    SPECULATIVE = 4
    SPEAKING = 5


@dataclass(slots=True)
class Scheduler:
    """Chooses batches. ``schedule`` "arrival" is first come, first served, for comparison."""

    max_batch: Mapping[str, int]
    schedule: Schedule = "urgency"
    step_s: dict[str, float] = field(default_factory=dict[str, float])
    held_s: list[float] = field(default_factory=list[float])
    """The seconds by which the last pick delayed each first step that was ready."""
    _waits_since_s: float | None = None
    """Since when a step has been waiting for a frame of a duplex session; None if none waits."""

    @property
    def round_s(self) -> float:
        """The estimated duration of one step of every stage, in seconds."""
        return sum(self.step_s.values())

    def timed(self, stage: str, took_s: float) -> None:
        """Update the estimate of a stage's step time: fast to rise and slow to fall, so that it is near the p95."""
        known = self.step_s.get(stage, took_s)
        weight = 0.3 if took_s > known else 0.03
        self.step_s[stage] = known + weight * (took_s - known)

    def urgency(self, req: StageRequest, now_s: float) -> tuple[Urgency, float, int]:
        """Return the sort key of a request: smaller is more urgent, and stages nearer to the audio come first."""
        listener = req.listener
        if req.clock is not None and req.on_clock:
            return Urgency.FRAME, req.clock.due_s, -req.info.order
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
        """Return for how long a first step may wait for others that are still being read; 0 or less: not at all."""
        if req.stepped or self.schedule == "arrival" or self.urgency(req, now_s)[0] != Urgency.SILENT:
            return 0.0
        return req.listener.arrived_s + min(HELD_S, self.step_s.get(req.info.name, 0.0)) - now_s

    def pick(
        self,
        ready: Iterable[StageRequest],
        now_s: float,
        among: Iterable[StageRequest] = (),
        next_frame: StageRequest | None = None,
    ) -> Sequence[StageRequest]:
        """Return the next batch: requests at one stage, at most its ``max_batch``.

        Args:
            ready: The requests that can step.
            now_s: The time in monotonic seconds.
            among: All requests. Some that are not ready may be worth waiting for.
            next_frame: The duplex session whose frame is due next; None if there is none.

        Returns:
            The requests to step; empty if none is ready, or if all should wait.
        """
        ranked = list(ready)
        held = {req: held_s for req in ranked if not req.stepped and (held_s := self._holds_s(req, now_s)) > 0}
        coming = held and any(req.being_read and self._holds_s(req, now_s) > 0 for req in among)
        self.held_s = list(held.values()) if coming else []
        if coming:
            ranked = [req for req in ranked if req not in held]
        if not ranked or (len(ranked) == 1 and next_frame is None):
            return ranked
        ranked.sort(key=lambda req: self.urgency(req, now_s))
        stage = self._together(ranked, now_s)
        batch = [req for req in ranked if req.info.name == stage and req.on_clock == ranked[0].on_clock]
        if self._waits_for_frame(batch[0], now_s, next_frame):
            return []
        if batch[0].alone or batch[0].has_prompt:  # the prompts of several sessions would take longer than a frame
            return batch[:1]
        batch = [req for req in batch if not req.alone]
        sizes = itertools.accumulate(len(req.together) for req in batch)
        fits = sum(size <= self.max_batch[stage] for size in sizes)
        return batch[: max(fits, 1)]  # a group that is larger than a batch steps alone

    def _waits_for_frame(self, first: StageRequest, now_s: float, next_frame: StageRequest | None) -> bool:
        """Whether a step of another stage should wait, because the next frame of a duplex session would be late.

        It waits for at most one frame: otherwise a long step could wait for ever.
        """
        clock = next_frame.clock if next_frame is not None and not (first.on_clock or first.info.blocking) else None
        if next_frame is None or clock is None:
            return False
        ends_s = now_s + self.step_s.get(first.info.name, 0.0)
        in_time = ends_s <= clock.due_s + clock.frame_s - self.step_s.get(next_frame.info.name, 0.0)
        waits_since_s = now_s if self._waits_since_s is None else self._waits_since_s
        waits = not in_time and now_s < waits_since_s + clock.frame_s
        self._waits_since_s = waits_since_s if waits else None
        return waits

    def _together(self, ranked: Sequence[StageRequest], now_s: float) -> str:
        """Return the stage to step: the stage of the most urgent request.

        If that request waits for its first audio, requests that arrived together with it are compared, and the one
        whose ready stage is furthest from the audio decides.
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
