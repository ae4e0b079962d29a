"""One hop of a request: neighbouring stages on one worker, with their input and output."""

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
    """Neighbouring stages on one worker."""

    first: int
    """The index of its first pool."""
    end: int
    """The index after its last pool. Before the hop runs: the highest index that it may reach."""
    inputs: ReplayBuffer
    onward: Stream
    """The input of the next hop."""
    near: str | None = None
    """The worker that it should run on."""
    given: Counts = field(default_factory=dict[str, int])
    """Counts of what it has given to the next hop."""
    late: bool = False
    """Whether the hop waits for the end of the user's turn before it takes a slot."""
    losses: int = 0
    """Replicas that were lost, possibly because of this request."""
    steps_lost: int = 0
    """Steps with this request that failed without ending the request."""
    again: bool = False
    """Whether it has run before. The output of that run is then left out."""
    alone: bool = False
    """Whether its request must step alone, because it may have caused the failure of a step or a replica."""

    def pools(self, pools: Sequence[Pool]) -> Sequence[Pool]:
        """Return the pools of this hop, given all pools of the request."""
        return pools[self.first : self.end]
