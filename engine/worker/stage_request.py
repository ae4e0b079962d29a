"""A request at a stage in one of its roles, as seen by the stage and the step loop. No I/O, no clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.chunk import Checkpoint, Chunk, Counts
from engine.core import Request, StageInfo
from engine.stream import Stream
from engine.worker.frame_clock import DuplexFrame, FrameClock
from engine.worker.listener import Listener
from engine.worker.pace import Pace

BETWEEN_STAGES = 64  # chunks between two stages: some seconds of codec frames, a few sentences of text
NO_INFO = StageInfo()


@dataclass(slots=True, eq=False)
class StageRequest:
    """A request at a stage in one of its roles, from its lease to its end.

    The stage may write ``state`` at any time, and ``needs_input``, ``done``, ``cut`` and ``waits`` in ``step``.
    """

    request: Request
    slot: int
    """An index in [0, info.slots) that no other open request has, for preallocated state such as a KV cache."""
    pace: Pace
    """The number of codec frames in each chunk of audio."""
    role: str = "main"
    """One of ``request.roles``."""
    state: Any = None
    """The stage's own data for this request."""
    pending: deque[Any] = field(default_factory=deque[Any])
    """Items from the stage's adapter that the stage has not consumed yet."""
    ended: bool = False
    """Whether no more items will come."""
    needs_input: bool = True
    """Whether the stage cannot step the request before the next item, or the end of input, arrives."""
    done: bool = False
    """Whether the stage has nothing left to emit."""
    cut: bool = False
    """Whether it ended early because the stage has no room for more. The answer's finish is then "length"."""
    waits: bool = False
    """Whether the stage has no room for it now. It steps again when another request ends, or an item arrives."""
    closed: bool = False
    """Whether the request has ended. A step of it that is still running may stop."""
    kept: Sequence[Chunk] = ()
    """The chunks that the stage checkpointed on a lost replica: kinds in its info's ``checkpoints``, which have been
    sent again unchanged, and its last Checkpoint.

    A stage may continue from that state as if it had produced these chunks itself. Otherwise it starts from the
    beginning with the same input, and the output that was delivered before is left out.
    """
    whole: bool = False
    """Whether the lost replica delivered all text with its Usage: no text follows ``kept``."""
    stored: bool = True
    """Whether the server stores the stage's ``checkpoints``.

    A stage that cannot continue this request from them sets it to False in ``open``. The answer then fails if the
    replica is lost.
    """

    # The fields below belong to the step loop. A stage must not use them.

    info: StageInfo = NO_INFO
    """The stage's description."""
    listener: Listener = field(default_factory=Listener)
    clock: FrameClock | None = None
    """The clock of its frames, at a duplex stage."""
    frame: DuplexFrame | None = None
    """The frame of its current step, at a duplex stage; None in a step of its prompt."""
    group: Sequence[StageRequest] = ()
    """The same request at this stage in all its roles, the main one first; empty if it has one role."""
    alone: bool = False
    """Whether it must step alone: it was one of several requests in a step that failed."""
    inputs: Stream = field(default_factory=lambda: Stream(BETWEEN_STAGES))
    consumed: asyncio.Event = field(default_factory=asyncio.Event)
    marks: dict[str, float] = field(default_factory=dict[str, float])
    given: list[Chunk] = field(default_factory=list[Chunk])
    """Chunks for the Bundle of a joined group, bounded by the request's limits on tokens and frames."""
    stepped: bool = False
    """Whether a step with it has succeeded. It is then a less likely cause of a later crash."""
    in_step: bool = False
    """Whether the thread of a blocking stage is stepping it. Only that thread then uses the fields above ``info``."""
    silent_steps: int = 0
    """Consecutive steps without input and without output."""
    made: Counts = field(default_factory=dict[str, int])
    """Counts of what it has produced so far, which its state covers."""

    @property
    def ready(self) -> bool:
        """Whether a step would make progress."""
        return not (self.done or self.waits) and (bool(self.pending) or self.ended or not self.needs_input)

    @property
    def on_clock(self) -> bool:
        """Whether it steps on the clock of the user's sound, at a duplex stage whose prompt is computed."""
        return self.clock is not None and self.needs_input

    @property
    def has_prompt(self) -> bool:
        """Whether a duplex stage still computes its prompt."""
        return self.clock is not None and not self.needs_input

    @property
    def being_read(self) -> bool:
        """Whether its input is complete, but the adapter has not yet produced an item."""
        return not self.stepped and self.inputs.ended and not self.ready

    @property
    def has_sound(self) -> bool:
        """Whether its listener has received audio of the answer."""
        return self.listener.started_s is not None

    @property
    def checkpoint(self) -> Mapping[str, Any] | None:
        """The last state that the stage checkpointed on a lost replica; None if there is none."""
        return next((chunk.state for chunk in reversed(self.kept) if isinstance(chunk, Checkpoint)), None)

    @property
    def roles(self) -> Mapping[str, StageRequest]:
        """The same request at this stage in each of its roles, including this one.

        Only the chunks of the main role form the answer.
        """
        return {one.role: one for one in self.group or (self,)}

    @property
    def together(self) -> Sequence[StageRequest]:
        """The roles that step together with this one. It is the first of them."""
        return self.group if self.group and self.info.group == "guided" else (self,)

    def mark(self, word: str) -> str:
        """Return the name of a timeline event of this role."""
        return self.info.mark(word, self.role)
