"""A request at a stage in one of its roles, as the stage and the step loop see it. No I/O, no clock."""

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
    """A request at a stage in one of its roles, from its lease to its end.

    The stage writes ``state`` as it likes, and ``needs_input``, ``done``, ``cut`` and ``waits`` in ``step``.
    """

    request: Request
    slot: int
    """A number in [0, info.slots) that no other open request of the stage has: the index into preallocated state (KV
    cache, convolution tails)."""
    pace: Pace
    """How many codec frames to put into each chunk of audio."""
    role: str = "main"
    """One of ``request.roles``."""
    state: Any = None
    """The stage's own data on this request."""
    pending: deque[Any] = field(default_factory=deque[Any])
    """Items that the stage's adapter made of upstream chunks and the stage has not consumed yet."""
    ended: bool = False
    """Whether no more items will come."""
    needs_input: bool = True
    """Whether the stage cannot step the request before another item (or the end) arrives."""
    done: bool = False
    """Whether the stage has nothing left to emit."""
    cut: bool = False
    """Whether it is done early, because the stage has no room for more: the answer's finish is "length"."""
    waits: bool = False
    """Whether the stage has no room for it now. It steps again once another request there ends, or an item arrives."""
    closed: bool = False
    """Whether the request is over: a step of it that is still running may stop."""
    kept: Sequence[Chunk] = ()
    """What the stage checkpointed on a lost replica: the chunks of its info's ``checkpoints``, which were passed on
    again unchanged, and its last Checkpoint. A stage may continue from that state, as if it had given all of it itself.
    Otherwise it begins again with the same input, and what it had given before is left out."""
    whole: bool = False
    """Whether the lost replica gave all of the answer's text, with its Usage: after ``kept``, no more text comes."""
    stored: bool = True
    """Whether the server stores the stage's ``checkpoints``. A stage that cannot continue from them for this request
    sets it to False in ``open``; then the answer ends if the replica is lost."""

    # The fields below belong to the step loop: a stage neither reads nor writes them.

    info: StageInfo = NO_INFO
    """What the stage declares about itself."""
    listener: Listener = field(default_factory=Listener)
    group: Sequence[StageRequest] = ()
    """The same request at this stage in all its roles, the main one first; empty if it has one role."""
    alone: bool = False
    """Whether it must step alone: it was one of several requests in a step that failed."""
    inputs: Stream = field(default_factory=lambda: Stream(BETWEEN_STAGES))
    consumed: asyncio.Event = field(default_factory=asyncio.Event)
    marks: dict[str, float] = field(default_factory=dict[str, float])
    given: list[Chunk] = field(default_factory=list[Chunk])
    """Chunks for the Bundle of a joined group: bounded by the request's limits of tokens and frames."""
    stepped: bool = False
    """Whether it has been in a successful step, so that it is less likely to be the cause of a crash."""
    in_step: bool = False
    """Whether the thread of a blocking stage is stepping it. Until that returns, only the thread touches the fields
    above ``info``."""
    silent_steps: int = 0
    """Consecutive steps without input and without output."""
    made: Counts = field(default_factory=dict[str, int])
    """Counts of what it has given so far, which its state covers."""

    @property
    def ready(self) -> bool:
        """Whether a step would make progress."""
        return not (self.done or self.waits) and (bool(self.pending) or self.ended or not self.needs_input)

    @property
    def being_read(self) -> bool:
        """Whether all of its input has come, and the adapter has not yet made an item of it."""
        return not self.stepped and self.inputs.ended and not self.ready

    @property
    def has_sound(self) -> bool:
        """Whether its listener has audio of the answer."""
        return self.listener.started_s is not None

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The last state that the stage checkpointed on a lost replica; None without any."""
        return next((chunk.state for chunk in reversed(self.kept) if isinstance(chunk, Checkpoint)), None)

    @property
    def roles(self) -> Mapping[str, StageRequest]:
        """The same request in each of its roles at this stage, including this one. Only the main role's chunks are the
        answer."""
        return {one.role: one for one in self.group or (self,)}

    @property
    def together(self) -> Sequence[StageRequest]:
        """The roles that step together with this one, itself first."""
        return self.group if self.group and self.info.group == "guided" else (self,)

    def mark(self, word: str) -> str:
        """Return the name on the timeline of an event of this role."""
        return self.info.mark(word, self.role)
