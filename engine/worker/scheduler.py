"""Which requests step next. Pure Python: no torch, no clock of its own, no I/O.

Speech has deadlines. A worker that hosts several stages on one device takes the stage of the most urgent seat and
fills the rest of the batch with that stage's other ready seats, most urgent first. The classes, in order:

1. listeners about to run dry: what they still have to hear is shorter than two rounds of steps;
2. committed requests that have made no sound yet, in order of arrival; those that came together go together, stage by
   stage, since a batch costs little more than one of them;
3. other listeners, by slack;
4. answers to a turn that may not be over (speculative);
5. prefill of turns still being spoken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from engine.config import Schedule
from engine.worker.stage import Seat

HELD_ROUNDS = 4  # so long at most does a first sound wait for those that came with it


class Urgency(IntEnum):
    DRY = 0
    SILENT = 1
    LISTENING = 2
    SPECULATIVE = 3
    SPEAKING = 4


@dataclass(slots=True)
class Listener:
    """What one request's listener has got, and when it began to play. Times are monotonic seconds."""

    arrived_s: float
    committed: bool = True
    """Whether the user's turn is over (False while it is still being spoken)."""
    speculative: bool = False
    """Whether nobody is to hear it yet: the turn that it answers may go on."""
    produced_s: float = 0.0
    started_s: float | None = None
    again_s: float = 0.0
    """Of an answer that goes on here: how much of it another replica had given."""
    made_s: float = 0.0
    """What has been made here, with what was given before."""

    def resume(self, given_s: float, playing_s: float | None, now_s: float) -> None:
        """Go on for a listener who has got ``given_s`` elsewhere and has been playing for ``playing_s``."""
        self.again_s = self.produced_s = given_s
        self.started_s = None if playing_s is None else now_s - playing_s

    def slack_s(self, now_s: float) -> float:
        """Audio produced and not yet played; nothing has started: nothing runs dry."""
        return self.produced_s if self.started_s is None else self.produced_s - (now_s - self.started_s)

    def produce(self, audio_s: float, now_s: float) -> None:
        """Audio leaves. Until a playout report says otherwise, a listener plays from its first sample on."""
        new_s = min(audio_s, self.made_s + audio_s - self.again_s)
        self.made_s += audio_s
        if new_s <= 0:
            return
        if self.started_s is None:
            self.started_s = None if self.speculative else now_s
        elif self.slack_s(now_s) < 0:  # it ran dry: it goes on from here
            self.started_s = now_s - self.produced_s
        self.produced_s += new_s


@dataclass(slots=True, eq=False)
class Entry:
    """A seat as the scheduler sees it. ``order`` is its stage's place in the line; ``seats`` step when it does."""

    seat: Seat
    stage: str
    order: int
    listener: Listener
    seats: int = 1
    alone: bool = False
    """Whether it steps with no other request: a step of several has broken, and it was one of them."""


@dataclass(slots=True)
class Scheduler:
    """Picks batches; ``round_s`` is how long one step of every stage takes, measured by the loop.

    ``schedule`` "arrival" is first come, first served, to measure what urgency is worth.
    """

    max_batch: dict[str, int]
    schedule: Schedule = "urgency"
    step_s: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def round_s(self) -> float:
        return sum(self.step_s.values())

    def timed(self, stage: str, took_s: float) -> None:
        """Learn how long a step of a stage takes: quick to rise, slow to fall, so that the estimate is near a p95."""
        known = self.step_s.get(stage, took_s)
        weight = 0.3 if took_s > known else 0.03
        self.step_s[stage] = known + weight * (took_s - known)

    def urgency(self, entry: Entry, now_s: float) -> tuple[Urgency, float, int]:
        """Smaller is more urgent; of one request, the stage nearest to the sound comes first."""
        listener = entry.listener
        if self.schedule == "arrival":
            return Urgency.LISTENING, listener.arrived_s, -entry.order
        if not listener.committed:
            return Urgency.SPEAKING, listener.arrived_s, -entry.order
        if listener.speculative:
            return Urgency.SPECULATIVE, listener.arrived_s, -entry.order
        if listener.started_s is None:
            return Urgency.SILENT, listener.arrived_s, -entry.order
        slack_s = listener.slack_s(now_s)
        dry = slack_s < 2 * self.round_s
        return (Urgency.DRY if dry else Urgency.LISTENING), slack_s, -entry.order

    def pick(self, ready: Iterable[Entry], now_s: float) -> Sequence[Entry]:
        """The next batch: entries of one stage, at most its ``max_batch``; empty if none is ready."""
        ranked = list(ready)
        if len(ranked) < 2:
            return ranked
        ranked.sort(key=lambda entry: self.urgency(entry, now_s))
        stage = self._together(ranked, now_s)
        batch = [entry for entry in ranked if entry.stage == stage]
        if batch[0].alone:
            return batch[:1]
        batch = [entry for entry in batch if not entry.alone]
        sizes = itertools.accumulate(entry.seats for entry in batch)
        fits = sum(size <= self.max_batch[stage] for size in sizes)
        return batch[: max(fits, 1)]  # a group that is larger than a batch steps alone

    def _together(self, ranked: Sequence[Entry], now_s: float) -> str:
        """The most urgent entry's stage; among first sounds that of who, of those that came together, is furthest back.

        A request is as far as its stage nearest to the sound that is ready: it is not held up by what comes later.
        """
        first = ranked[0]
        arrived_s = first.listener.arrived_s
        if self.urgency(first, now_s)[0] != Urgency.SILENT or now_s - arrived_s > HELD_ROUNDS * self.round_s:
            return first.stage
        reached: dict[int, Entry] = {}
        for entry in ranked:  # of one request, the nearest to the sound comes first
            if self.urgency(entry, now_s)[0] == Urgency.SILENT:
                if entry.listener.arrived_s > arrived_s + self.round_s:
                    break
                reached.setdefault(id(entry.listener), entry)
        return min(reached.values(), key=lambda entry: entry.order).stage
