"""The seats of one request at a stage: one for each of its roles. A group of one is the ordinary case.

All of them are fed the same. In a *guided* group they step together, in one batch, and the stage makes one answer of
them. In a *joined* group each goes on to its own end, and what they gave for the next stage leaves as one bundle, once
all of them have ended. What a companion (a role that is not the first) gives never leaves on its own. Pure: no I/O, no
clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.chunk import Bundle, Chunk, Counts
from engine.errors import StageFailed
from engine.stream import Stream, Taken
from engine.worker.scheduler import Entry
from engine.worker.stage import Stage

BETWEEN_STAGES = 64  # chunks between two stages: some seconds of codec frames, a few sentences of text


@dataclass(slots=True, eq=False)
class Hosted:
    """A seat as a run sees it: what it is fed, and what has been noted of it."""

    entry: Entry
    group: Group
    source: Stream = field(default_factory=lambda: Stream(BETWEEN_STAGES))
    consumed: asyncio.Event = field(default_factory=asyncio.Event)
    marks: dict[str, float] = field(default_factory=dict[str, float])
    given: list[Chunk] = field(default_factory=list[Chunk])
    """For the bundle of a joined group: bounded by the request's limits of tokens and frames."""
    stepped: bool = False
    """Whether it has been in a step: what has gone well once is no suspect."""
    made: Counts = field(default_factory=dict[str, int])
    """How much it has given by now, which its state covers."""

    @property
    def main(self) -> bool:
        return self.group.hosted[0] is self

    def mark(self, word: str) -> str:
        return self.group.stage.info.mark(word, self.entry.seat.role)


class Group:
    """What a run knows of one stage: ``hosted`` are its seats, the main role's first."""

    def __init__(self, stage: Stage, entries: Sequence[Entry]) -> None:
        self.stage = stage
        self.hosted = [Hosted(entry, self) for entry in entries]
        self.guided = len(entries) > 1 and stage.info.group == "guided"
        self.joined = len(entries) > 1 and stage.info.group == "joined"
        self.stepping = self.hosted[:1] if self.guided else self.hosted
        """The seats that step on their own; of a guided group that is the main one, and the others come with it."""
        self.following: Group | None = None
        """The next stage here; None: the chunks of this one leave the worker."""
        self._released = False

    @property
    def full(self) -> bool:
        """Whether whoever feeds it must wait."""
        return any(one.source.room <= 0 and not one.source.ended for one in self.hosted)

    @property
    def done(self) -> bool:
        return all(one.entry.seat.done for one in self.hosted)

    def beside(self, hosted: Hosted) -> list[Hosted]:
        """Those that step when this one does, itself first."""
        return self.hosted if self.guided else [hosted]

    def feed(self, chunk: Chunk, taken: Taken) -> None:
        """Give a chunk to every seat that takes such; ``taken`` is called once the last of them has done with it."""
        if chunk.kind not in self.stage.info.takes and not isinstance(chunk, Bundle):
            taken()
            return
        if len(self.hosted) == 1:
            self.hosted[0].source.put(chunk, taken)
            return
        left = len(self.hosted)

        def one_took() -> None:
            nonlocal left
            left -= 1
            if not left:
                taken()

        for one in self.hosted:
            one.source.put(chunk, one_took)

    def close(self) -> None:
        """Tell every seat that no more will come."""
        for one in self.hosted:
            one.source.close()

    def bundle(self) -> Bundle | None:
        """What all roles of a joined group gave, once. None before all have ended, and again.

        Raises StageFailed if a role gave nothing while others gave something: guidance would be computed from half.
        """
        if not self.joined or not self.done or self._released:
            return None
        self._released = True
        given = {one.entry.seat.role: tuple(one.given) for one in self.hosted}
        missing = [role for role, chunks in given.items() if not chunks]
        if 0 < len(missing) < len(given):
            raise StageFailed(f"{self.stage.info.name} gave nothing for {', '.join(missing)}; ask again")
        return Bundle(given)
