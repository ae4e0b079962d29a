"""One request at one stage in one of its roles, as the stage and the step loop see it. Pure: no I/O, no clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.chunk import Checkpoint, Chunk, Counts
from engine.core import Request, StageInfo
from engine.stream import Stream
from engine.worker.listener import Listener
from engine.worker.pace import Pace

BETWEEN_STAGES = 64  # chunks between two stages: some seconds of codec frames, a few sentences of text
NO_INFO = StageInfo()


@dataclass(slots=True, eq=False)
class StageRequest:
    """One request at a stage in one of its roles, from its lease to its end.

    ``pending`` holds the items that the stage's adapter made of the upstream's chunks and the stage has not consumed;
    ``ended`` says that no more will come. The stage writes four fields in ``step``: ``needs_input``, that it cannot
    step this request again before something more (or the end) arrives, ``done``, that it has nothing left to emit,
    ``cut``, and ``waits``. ``slot`` is a number in [0, info.slots) that no other open request of the stage has: the
    index into preallocated state (KV, conv tails).

    ``kept`` is what the stage checkpointed on a replica that was lost: the chunks of its info's ``checkpoints``, which
    are passed on again as they are, and its last Checkpoint. A stage may go on behind that state, as if it had given
    what it gave before. Else it begins anew and is fed the same again, and what it had given is left out.
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
    cut: bool = False
    """Whether it is done before all was said, since the stage has no room for more: the answer's finish is "length"."""
    waits: bool = False
    """Whether the stage has no room for it now: it steps again once another request there is over, or more comes in."""
    closed: bool = False
    """Whether nobody waits for it any more: a step of it that is under way may stop."""
    kept: Sequence[Chunk] = ()
    whole: bool = False
    """Whether all of the answer's text was given elsewhere, its Usage too: behind what was kept, nothing more comes."""
    stored: bool = True
    """Whether what the stage gives of its info's ``checkpoints`` is stored; one that may find at ``open`` that it could
    not go on behind it says no there, and the answer ends as soon as the replica is lost."""

    # The fields below are the step loop's own: a stage neither reads nor writes them.

    info: StageInfo = NO_INFO
    """The stage's facts."""
    listener: Listener = field(default_factory=Listener)
    group: Sequence[StageRequest] = ()
    """The same request at this stage in all its roles, the main one first; empty where it has one role."""
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
    silent_steps: int = 0
    """Steps in a row since it was given something, or gave something."""
    made: Counts = field(default_factory=dict[str, int])
    """Counts of what it has given by now, which its state covers."""

    @property
    def ready(self) -> bool:
        """Whether a step of it would do something."""
        return not (self.done or self.waits) and (bool(self.pending) or self.ended or not self.needs_input)

    @property
    def being_read(self) -> bool:
        """Whether all of its input has come, and the stage has yet to make something of it that a step can take."""
        return not self.stepped and self.inputs.ended and not self.ready

    @property
    def has_sound(self) -> bool:
        """Whether its listener has sound of the answer by now."""
        return self.listener.started_s is not None

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The last state that the stage checkpointed on a replica that was lost; None without."""
        return next((chunk.state for chunk in reversed(self.kept) if isinstance(chunk, Checkpoint)), None)

    @property
    def roles(self) -> Mapping[str, StageRequest]:
        """The same request in each of its roles at this stage, itself among them: the main role's chunks are the
        answer, its companions' chunks are not passed on."""
        return {one.role: one for one in self.group or (self,)}

    @property
    def together(self) -> Sequence[StageRequest]:
        """Return the roles that step when this one does, itself first."""
        return self.group if self.group and self.info.group == "guided" else (self,)

    def mark(self, word: str) -> str:
        """Return the name that a moment of it has on the timeline."""
        return self.info.mark(word, self.role)
