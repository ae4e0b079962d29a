"""One request at one stage, and the roles that it has there.

All roles are fed the same. In a *guided* group they step together, in one batch, and the stage makes one answer of
them. In a *joined* group each goes on to its own end, and what they gave for the next stage leaves as one bundle, once
all of them have ended. What a companion (a role that is not the first) gives never leaves on its own. A group of one
is the ordinary case. Pure: no I/O, no clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.chunk import Bundle, Checkpoint, Chunk, Counts
from engine.core import Request, StageInfo
from engine.errors import StageFailed
from engine.stream import Stream, Taken
from engine.worker.listener import Listener
from engine.worker.pace import Pace

if TYPE_CHECKING:
    from engine.worker.stage import Stage

BETWEEN_STAGES = 64  # chunks between two stages: some seconds of codec frames, a few sentences of text
NO_INFO = StageInfo()


@dataclass(slots=True, eq=False)
class StageRequest:
    """One request at a stage in one of its roles, from its lease to its end.

    ``pending`` is what the stage's adapter made of the upstream's chunks and the stage has not consumed; ``ended`` says
    that no more will come. The stage writes two fields in ``step``: ``needs_input``, that it cannot step this request
    again before something more (or the end) arrives, and ``done``, that it has nothing left to emit. ``slot`` is a
    number in [0, info.slots) that no other open request of the stage has: the index into preallocated state (KV, conv
    tails). ``kept`` is what the stage checkpointed on a replica that was lost: the chunks of its info's
    ``checkpoints``, which are passed on again as they are, and its last Checkpoint. A stage may go on behind that
    state, as if it had given what it gave before; else it begins anew, is fed the same again, and what it had given is
    left out.
    """

    request: Request
    slot: int
    pace: Pace
    role: str = "main"
    state: Any = None
    pending: deque[Any] = field(default_factory=deque[Any])
    ended: bool = False
    needs_input: bool = True
    done: bool = False
    closed: bool = False
    """Whether nobody waits for it any more: a step of it that is under way may stop."""
    kept: Sequence[Chunk] = ()
    whole: bool = False
    """Whether all of the answer's text was given elsewhere, its Usage too: behind what was kept, nothing more comes."""
    stored: bool = True
    """Whether what the stage gives of its info's ``checkpoints`` is stored; one that may find at ``open`` that it could
    not go on behind it says no there, and the answer ends as soon as the replica is lost."""

    # What follows is the step loop's own: a stage neither reads nor writes it.

    info: StageInfo = NO_INFO
    """The stage's facts."""
    listener: Listener = field(default_factory=Listener)
    group: Group | None = None
    alone: bool = False
    """Whether it steps with no other request: a step of several has broken, and it was one of them."""
    inputs: Stream = field(default_factory=lambda: Stream(BETWEEN_STAGES))
    consumed: asyncio.Event = field(default_factory=asyncio.Event)
    marks: dict[str, float] = field(default_factory=dict[str, float])
    given: list[Chunk] = field(default_factory=list[Chunk])
    """Chunks for the bundle of a joined group: bounded by the request's limits of tokens and frames."""
    stepped: bool = False
    """Whether it has been in a step: what has gone well once is no suspect."""
    in_step: bool = False
    """Whether a blocking stage steps it just now, in a thread of its own: until that has returned, only it touches
    what is above."""
    made: Counts = field(default_factory=dict[str, int])
    """Counts of what it has given by now, which its state covers."""

    @property
    def ready(self) -> bool:
        """Whether a step of it would do something."""
        return not self.done and (bool(self.pending) or self.ended or not self.needs_input)

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The last state that the stage checkpointed on a replica that was lost; None without."""
        return next((chunk.state for chunk in reversed(self.kept) if isinstance(chunk, Checkpoint)), None)

    @property
    def roles(self) -> Mapping[str, StageRequest]:
        """The same request in each of its roles at this stage, itself among them: what the main one gives is the
        answer, what its companions give is not passed on."""
        return self.group.roles if self.group is not None else {self.role: self}

    @property
    def together(self) -> Sequence[StageRequest]:
        """Return the roles that step when this one does, itself first."""
        return self.group.reqs if self.group is not None and self.group.guided else (self,)

    def mark(self, word: str) -> str:
        """Return the name that a moment of it has on the timeline."""
        return self.info.mark(word, self.role)


class Group:
    """One request at a stage in all its roles: ``reqs``, the main role's first."""

    def __init__(self, stage: Stage, reqs: Sequence[StageRequest]) -> None:
        self.stage, self.reqs = stage, reqs
        self.roles = {req.role: req for req in reqs}
        self.guided = len(reqs) > 1 and stage.info.group == "guided"
        self.joined = len(reqs) > 1 and stage.info.group == "joined"
        self.stepping = reqs[:1] if self.guided else reqs
        """Roles that step on their own; of a guided group that is the main one, and the others come with it."""
        self.following: Group | None = None
        """The group at the next stage of this worker; None: the chunks of this one leave the worker."""
        self._released = False
        for req in reqs:
            req.group = self

    @property
    def main(self) -> StageRequest:
        return self.reqs[0]

    @property
    def full(self) -> bool:
        """Whether whoever feeds it must wait."""
        return any(req.inputs.room <= 0 and not req.inputs.ended for req in self.reqs)

    @property
    def done(self) -> bool:
        return all(req.done for req in self.reqs)

    def feed(self, chunk: Chunk, taken: Taken) -> None:
        """Give a chunk to every role if the stage takes such; ``taken`` is called once the last has done with it."""
        if chunk.kind not in self.stage.info.takes and not isinstance(chunk, Bundle):
            taken()
            return
        if len(self.reqs) == 1:
            self.main.inputs.put(chunk, taken)
            return
        left = len(self.reqs)

        def one_took() -> None:
            nonlocal left
            left -= 1
            if not left:
                taken()

        for req in self.reqs:
            req.inputs.put(chunk, one_took)

    def close(self) -> None:
        """Tell every role that no more will come."""
        for req in self.reqs:
            req.inputs.close()

    def bundle(self) -> Bundle | None:
        """Return what all roles of a joined group gave, once. None before all have ended, and again.

        Raises StageFailed if a role gave nothing while others gave something: guidance would be computed from half.
        """
        if not self.joined or not self.done or self._released:
            return None
        self._released = True
        given = {req.role: tuple(req.given) for req in self.reqs}
        missing = [role for role, chunks in given.items() if not chunks]
        if 0 < len(missing) < len(given):
            raise StageFailed(f"{self.stage.info.name} gave nothing for {', '.join(missing)}; ask again")
        return Bundle(given)
