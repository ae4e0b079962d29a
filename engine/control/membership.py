"""Failure detection of workers: heartbeats in, losses out. Sans I/O; the clock is an argument.

A worker has a *name*, its place in the deployment, and an *id*: the name and the number of its incarnation. Ids are
only issued here, and never twice. So a late message of an earlier incarnation has an unknown id and is ignored.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from engine.aio.back_off import back_off_s
from engine.deployment.config import HeartbeatSpec
from engine.ipc.messages import Beat, Blocking
from engine.ipc.processor_time import Activity, ProcessorTime

log = logging.getLogger(__name__)

STEPS = 5  # a step may take this many times its usual time before the worker counts as hung
FIRST_PENALTY_S, LAST_PENALTY_S = 0.5, 30.0
STEADY_S = 60.0  # a worker that has lived this long does not count as flapping
ON_DISK_S = 5.0  # maximum time for which a worker may wait for a disk without counting as hung
LONELY_S = 1.0  # maximum penalty of a worker whose stages have no other replica
MOST_PATIENCE_S = 4.0  # maximum extra time for silence after losses of the same worker: each restart adds load
QUIET = 2  # heartbeat intervals without a sign of life after which a worker is observed
LATE_REPORT_S = 10.0  # minimum time between two log lines about a blocked server


@dataclass(slots=True)
class BlockingStep:
    """A running step of a blocking stage."""

    most_s: float
    """Maximum duration in seconds."""
    until_s: float
    """The resulting deadline, in monotonic seconds."""


@dataclass(slots=True)
class Life:
    """The last known state of an incarnation. Times are monotonic seconds."""

    joined_s: float
    last_seen_s: float
    moved_s: float
    """The last time at which it completed a step, or had nothing to do."""
    beat: Beat
    """Its last heartbeat; an empty one before the first."""
    patience_s: float = 0.0
    """Extra time that it may be silent, because earlier incarnations were lost."""
    reading: ProcessorTime | None = None
    """Its processor time when it was last observed; None if it is not observed, or if that is unknown."""
    read_s: float = -math.inf
    """The time of its last observation."""
    observed: Activity = field(default_factory=Activity)
    """What it did while it was observed, since it was last heard."""
    blocking: dict[str, BlockingStep] = field(default_factory=dict[str, BlockingStep])
    """The current steps of its blocking stages, by stage."""
    blocks: set[str] = field(default_factory=set[str])
    """Its blocking stages that have stepped at least once."""

    @property
    def busy(self) -> bool:
        """Whether requests were ready to step at the last heartbeat."""
        return any(self.beat.queues.values())

    @property
    def quiet_s(self) -> float:
        """The time since which it should have done something: beat, completed a step, or returned from one."""
        steps_s = (step.until_s - step.most_s for step in self.blocking.values())
        return min(self.last_seen_s, self.moved_s if self.busy else math.inf, *steps_s)

    def heard(self, now_s: float) -> None:
        """Record a sign of life."""
        self.last_seen_s = now_s
        self.observed = Activity()
        if self.quiet_s >= now_s:
            self.reading = None

    def give_back(self, lost_s: float, now_s: float) -> None:
        """Extend all deadlines by ``lost_s``, seconds that do not count as silence, as far as they have passed."""
        self.last_seen_s = min(now_s, self.last_seen_s + lost_s)
        self.moved_s = min(now_s, self.moved_s + lost_s)
        for step in self.blocking.values():
            step.until_s = min(now_s + step.most_s, step.until_s + lost_s)


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that counts as lost, and the reason."""

    worker: str
    why: str


@dataclass(slots=True)
class _Record:
    """How often the worker of one name was lost, over all its incarnations, and when last."""

    losses: int = 0
    last_s: float = -math.inf


class Membership:
    """The live incarnations. Call ``look`` at ``due_s``: it returns the workers that are silent or stuck."""

    def __init__(self, spec: HeartbeatSpec, now: Callable[[], float]) -> None:
        self._spec = spec
        self._now = now
        self._lives: dict[str, Life] = {}
        self._incarnations: Counter[str] = Counter()
        self._records: dict[str, _Record] = {}
        self._planned_s = math.inf
        self._warned: set[tuple[str, str]] = set()
        self._reported_late_s = -math.inf

    def issue(self, name: str) -> str:
        """Create the id of the next incarnation of the worker ``name``."""
        self._incarnations[name] += 1
        return f"{name}#{self._incarnations[name]}"

    def join(self, worker: str) -> None:
        """Watch an incarnation from now on."""
        now_s = self._now()
        record = self._records.get(worker.rpartition("#")[0], _Record())
        patience_s = min(self._penalty_s(record), MOST_PATIENCE_S)
        self._lives[worker] = Life(now_s, now_s, now_s, Beat(worker, 0, {}, {}), patience_s)

    def leave(self, worker: str) -> None:
        """Forget an incarnation. Unknown ones are ignored."""
        self._lives.pop(worker, None)

    def __len__(self) -> int:
        return len(self._lives)

    def life(self, worker: str) -> Life | None:
        return self._lives.get(worker)

    def beat(self, sender: str, beat: Beat) -> Life | None:
        """Record a heartbeat from ``sender``'s link. Return None, and warn once, if its content is impossible.

        Chunks need not count as signs of life, because they share the link and the event loop with the heartbeats.
        """
        life = self._lives.get(beat.worker)
        wrong = _wrong(beat)
        if sender != beat.worker or life is None:
            wrong = f"it names {beat.worker!r:.60}, which is not the worker on that connection"
        if wrong or life is None:
            self._warn(sender, wrong)
            return None
        now_s = self._now()
        before = life.beat
        life.beat = beat
        if beat.steps != before.steps or not life.busy:
            life.moved_s = now_s
        life.heard(now_s)
        return life

    def blocking(self, worker: str, step: Blocking) -> None:
        """Record that a step of a blocking stage begins or has returned.

        Until it returns, its deadline applies to the worker: such a step may hold the GIL, and so delay heartbeats.
        """
        life = self._lives.get(worker)
        if life is None or not 0 <= step.most_s < math.inf:
            self._warn(worker, "its blocking step has an invalid duration")
            return
        now_s = self._now()
        life.moved_s = now_s
        life.blocks.add(step.stage)
        if step.most_s:
            life.blocking[step.stage] = BlockingStep(step.most_s, now_s + step.most_s)
        else:
            life.blocking.pop(step.stage, None)
        life.heard(now_s)

    @property
    def due_s(self) -> float:
        """Return the next time at which to observe a worker, or at which one may count as lost.

        Infinity without workers.
        """
        due_s = (min(self._deadline_s(life), self._observation_s(life)) for life in self._lives.values())
        self._planned_s = min(due_s, default=math.inf)
        return self._planned_s

    def look(self, read: Callable[[str], ProcessorTime | None] = lambda worker: None) -> list[Loss]:
        """Return the workers that count as lost now, and forget them.

        ``read`` returns the processor time of a worker, or None if it is unknown. A quiet worker is observed: time for
        which it waits for a processor or a disk does not count as silence.

        If this call itself is late, the server's event loop was blocked and read no heartbeats. Then every deadline is
        extended by that time, and is at least one heartbeat interval away.
        """
        now_s = self._now()
        late_s = now_s - self._planned_s
        is_late = late_s > self._spec.interval_s
        if is_late and now_s >= self._reported_late_s + LATE_REPORT_S:
            self._reported_late_s = now_s
            log.warning("the server was blocked for %.1f s; worker deadlines are extended", late_s)
        lost: list[Loss] = []
        for id, life in self._lives.items():
            if is_late or min(self._observation_s(life), self._deadline_s(life)) <= now_s:
                self._observe(life, read(id), now_s, late_s if is_late else 0.0)
            is_unobserved = life.reading is not None and not life.observed.elapsed_s
            if is_late or is_unobserved:  # a verdict needs two readings, and the heartbeats that wait to be read
                life.give_back(max(0.0, now_s + self._spec.interval_s - self._deadline_s(life)), now_s)
            elif self._deadline_s(life) <= now_s:
                lost.append(Loss(id, self._why(life, now_s) + _described(life.observed)))
        for loss in lost:
            self.leave(loss.worker)
        return lost

    def _observation_s(self, life: Life) -> float:
        return max(life.quiet_s + QUIET * self._spec.interval_s, life.read_s + self._spec.interval_s)

    @staticmethod
    def _observe(life: Life, reading: ProcessorTime | None, now_s: float, excused_s: float = 0.0) -> None:
        """Extend a worker's deadlines by its waits since it was last observed, and by at least ``excused_s``."""
        before = life.reading
        life.read_s = now_s
        life.reading = reading
        if before is not None and reading is not None:
            activity = reading.since(before)
            excused_s = max(excused_s, activity.waited_s)
            if life.observed.on_disk_s < ON_DISK_S:
                excused_s = max(excused_s, activity.on_disk_s)
            life.observed += activity
        life.give_back(excused_s, now_s)

    def lost(self, name: str) -> None:
        """Record the unplanned loss of a worker, by its name."""
        record = self._records.setdefault(name, _Record())
        steady = self._now() - record.last_s > STEADY_S + self._penalty_s(record)
        record.losses = 1 if steady else record.losses + 1
        record.last_s = self._now()

    def penalty_s(self, name: str, lonely: bool) -> float:
        """Return the delay before a lost worker is restarted: 0 at first, then an exponential back-off.

        ``lonely``: one of its stages has no other replica, so the delay is at most LONELY_S.
        """
        penalty_s = self._penalty_s(self._records.get(name, _Record()))
        return min(penalty_s, LONELY_S) if lonely else penalty_s

    @staticmethod
    def _penalty_s(record: _Record) -> float:
        return 0.0 if record.losses < 2 else back_off_s(record.losses - 2, FIRST_PENALTY_S, LAST_PENALTY_S)

    def _limit_s(self, life: Life) -> float:
        steps_s = (step_s for stage, step_s in life.beat.step_s.items() if stage not in life.blocks)
        return max(self._spec.timeout_s, STEPS * max(steps_s, default=0.0)) + life.patience_s

    def _deadline_s(self, life: Life) -> float:
        if life.blocking:
            return min(step.until_s for step in life.blocking.values())
        return min(life.last_seen_s, life.moved_s if life.busy else math.inf) + self._limit_s(life)

    def _why(self, life: Life, now_s: float) -> str:
        for stage, step in life.blocking.items():
            if step.until_s <= now_s:
                return f"a step of its stage {stage} has taken longer than the allowed {step.most_s:g} s"
        if now_s - life.last_seen_s >= self._limit_s(life):
            return f"it has been silent for {now_s - life.last_seen_s:.1f} s"
        return f"it has work but has completed no step for {now_s - life.moved_s:.1f} s"

    def _warn(self, sender: str, wrong: str) -> None:
        if (sender, wrong) not in self._warned and len(self._warned) < 1000:
            self._warned.add((sender, wrong))
            log.warning("a heartbeat of %s is ignored: %s", sender, wrong)


def _described(did: Activity) -> str:
    """Describe what a worker did while it was observed, as the end of a sentence."""
    if not did.elapsed_s:
        return ""
    waits = f"waited for a processor for {did.waited_s:.1f} s and for a disk for {did.on_disk_s:.1f} s"
    return f" (in the last {did.elapsed_s:.1f} s, it computed for {did.computed_s:.1f} s, and {waits})"


def _wrong(beat: Beat) -> str:
    """Explain which part of a heartbeat is impossible; empty if it is plausible."""
    if beat.steps < 0:
        return "its count of steps is negative"
    if any(queue < 0 for queue in beat.queues.values()):
        return "a queue is negative"
    if any(min(msgspec.structs.astuple(counts)) < 0 for counts in beat.remembered.values()):
        return "a counter of a prefix cache is negative"
    if any(min(msgspec.structs.astuple(counts)) < 0 for counts in beat.duplex.values()):
        return "a counter of frames is negative"
    if beat.at_s is not None and not math.isfinite(beat.at_s):
        return "its clock is not a finite number"
    if not all(0 <= step_s < math.inf for step_s in beat.step_s.values()):
        return "a step's duration is invalid"
    return ""
