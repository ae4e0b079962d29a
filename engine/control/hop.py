"""One hop of a request: the neighbouring stages that it passes on one worker, what they are fed, and what they gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.chunk import Counts
from engine.control.pool import StagePool
from engine.control.replica import StageReplica
from engine.stream import ReplayBuffer, Stream

Pool = StagePool[StageReplica]


@dataclass(slots=True, eq=False)
class Hop:
    """Neighbouring stages from ``first`` up to ``end`` (numbers of pools), their input, and where their output goes.

    ``end`` is how far the hop may reach; once it runs, how far it does.
    """

    first: int
    end: int
    inputs: ReplayBuffer
    onward: Stream
    near: str | None = None
    given: Counts = field(default_factory=dict[str, int])
    late: bool = False
    """Whether it waits for the end of the user's turn before it takes any slot."""

    # Results of recovery.

    losses: int = 0
    """Replicas that were lost, perhaps because of this request."""
    steps_lost: int = 0
    """Steps that broke while it was in them, and did not end it."""
    again: bool = False
    """Whether it has begun before, and what was given then is left out."""
    alone: bool = False
    """Whether it steps with no other request, since it may be what broke a step, or a replica."""

    def pools(self, pools: Sequence[Pool]) -> Sequence[Pool]:
        """Return the pools of this hop's stages, out of the request's."""
        return pools[self.first : self.end]
