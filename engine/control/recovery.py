"""Recovery of a request whose replica was lost: whether a hop begins again, on whose account, and behind what.

A hop that begins again is fed the same again and leaves out what was given: randomness is counter-based, so the rest
is what the lost replica would have said. What the stages checkpointed goes with it, so that the pause is short however
late in an answer the loss comes. A request that may be why a replica was lost is given to few, and one that is, to
none. Knows no stream of the client's and leases nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from engine.chunk import Chunk, Counts, Kind, Usage, kinds
from engine.control.chunks import Chunks
from engine.control.hop import Hop, Pool
from engine.control.replica import RemoteWorker
from engine.core import StageInfo
from engine.delivered import RecoveryLog, kind_of
from engine.errors import BatchLost, OutOfMemory, ReplicaLost, StageFailed
from engine.ipc import messages

LIVES = 2  # replicas that a request may lose where it may be the cause: the second loss ends it
STEPS_LOST = 8  # steps that ran out of memory from which a request begins again: each has ended another, or freed some
Blame = Literal["this", "perhaps this", "another", "nobody"]


class RequestRecovery:
    """One request's recovery: what its stages checkpointed, and the rules by which a hop begins again."""

    def __init__(self, chunks: Chunks, pools: Sequence[Pool]) -> None:
        self._chunks = chunks
        self._pools = pools
        self._log = RecoveryLog()

    def store(self, chunk: Chunk) -> None:
        """Keep what a stage checkpointed."""
        self._log.note(chunk)

    async def lost(self, hop: Hop, host: RemoteWorker | None, error: ReplicaLost) -> None:
        """Have a hop ready for another replica. Raises ReplicaLost if there must be none."""
        if not self._repeatable(hop):
            raise ReplicaLost(f"{error}; what was still to come of the answer is lost with it") from error
        blame = await self._blame(host)
        if blame == "this":
            raise ReplicaLost(
                f"{error}, and this request may be the cause, so no other replica gets it; change the request"
            ) from error
        hop.losses += blame != "another"
        if hop.losses == LIVES:
            raise ReplicaLost(f"{error}, the second that this request has lost; ask again") from error
        hop.alone |= blame == "perhaps this"
        _rewind(hop, error)

    def batch_lost(self, hop: Hop, error: BatchLost) -> None:
        """Have a hop ready to step again on the same replica: it was in a step that broke. Raises StageFailed if it
        must not. Where it may be the cause, it steps alone, and of such a one this cannot come again; where there was
        too little memory, it steps with the others that are left."""
        if not (self._repeatable(hop) and hop.inputs.whole):
            raise StageFailed(f"{error} What was still to come of the answer is lost; ask again.") from error
        hop.steps_lost += 1
        if hop.steps_lost > STEPS_LOST:
            raise StageFailed(f"The server ran out of memory {hop.steps_lost} times in this answer; try again later.")
        _rewind(hop, error)
        hop.alone |= not isinstance(error, OutOfMemory)

    def resume(self, hop: Hop) -> messages.Resume | None:
        """Return what was given before, for a hop that begins again to leave out; None the first time."""
        if not hop.again:
            return None
        chunks = self._chunks
        return messages.Resume(dict(chunks.given), dict(hop.given), chunks.playing_s, self._log.chunks(), hop.alone)

    def _repeatable(self, hop: Hop) -> bool:
        """Whether no stage of the hop has given something that it would not give again: two answers would be
        spliced."""
        return not any(self._unrepeatable(pool.info, hop) for pool in hop.pools(self._pools))

    def _unrepeatable(self, info: StageInfo, hop: Hop) -> frozenset[Kind]:
        """Return the kinds that a stage has given and would not give again."""
        emitted = info.emits & _kinds(self._chunks.given)
        match info.replay:
            case "exact":
                return frozenset()
            case "continue":
                return emitted - (info.checkpoints & self._log.kinds) - kinds(Usage)  # with it, nothing is to come
            case "never":
                return emitted | info.feeds & _kinds(hop.given)

    async def _blame(self, host: RemoteWorker | None) -> Blame:
        """Find whose fault it may be that a replica was lost: that of what it was doing for the first time.

        A request for which alone it hung or crashed has cost it, and is not given to the next one. Where several were
        tried, or the process may have been killed, each of them goes on, but alone. What went well before is no
        suspect while another is; where nobody is, all are, and LIVES is the bound.
        """
        this = self._chunks.request.id
        tried = host.trying if host is not None else frozenset[str]()
        if this not in tried:
            return "another" if tried else "nobody"
        if host is not None and len(tried) == 1 and (host.hung or await host.crashed()):
            return "this"
        return "perhaps this"


def _rewind(hop: Hop, error: ReplicaLost) -> None:
    """Feed a hop the same input again. Raises the error if that is no longer there."""
    if not hop.inputs.whole:
        raise error
    hop.inputs.rewind()
    hop.again = True


def _kinds(given: Counts) -> frozenset[str]:
    return frozenset(map(kind_of, given))
