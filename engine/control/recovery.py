"""Recovery of a request whose replica was lost: decides whether a hop begins again, and with what restrictions.

A hop is a group of neighbouring stages that run on one worker. A hop that begins again gets the same input, and skips
the output that was delivered. Randomness is counter-based, so the rest equals the lost replica's output. The stages'
checkpoints make the pause short, even late in an answer. A request that may have caused the loss is retried at most
once. A request that certainly caused it is not retried.
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

LIVES = 2  # replica losses that a request may have caused: the second one ends it
STEPS_LOST = 8  # out-of-memory failures after which a request is retried: each one ended a request or freed memory
Blame = Literal["this", "perhaps this", "another", "nobody"]


class RequestRecovery:
    """The recovery of one request: its stages' checkpoints, and the rules by which a hop begins again."""

    def __init__(self, chunks: Chunks, pools: Sequence[Pool]) -> None:
        self._chunks = chunks
        self._pools = pools
        self._log = RecoveryLog()

    def store(self, chunk: Chunk) -> None:
        """Store a chunk that a stage checkpointed."""
        self._log.note(chunk)

    async def lost(self, hop: Hop, host: RemoteWorker | None, error: ReplicaLost) -> None:
        """Prepare a hop for another replica. Raises ReplicaLost if it must not be retried."""
        if not self._repeatable(hop):
            raise ReplicaLost(f"{error}; the rest of the answer is lost; try again") from error
        blame = await self._blame(host)
        if blame == "this":
            raise ReplicaLost(
                f"{error}, probably because of this request, so it is not retried; change the request"
            ) from error
        hop.losses += blame != "another"
        if hop.losses == LIVES:
            raise ReplicaLost(f"{error}, the second one during this request; try again") from error
        hop.alone |= blame == "perhaps this"
        _rewind(hop, error)

    def batch_lost(self, hop: Hop, error: BatchLost) -> None:
        """Prepare a hop for another attempt on the same replica, after a step with several requests failed.

        After an out-of-memory error, the request steps together with the remaining ones. After any other error it may
        be the cause, so it steps alone, which cannot raise BatchLost again. Raises StageFailed if it must not be
        retried.
        """
        if not (self._repeatable(hop) and hop.inputs.whole):
            raise StageFailed(f"{error} The rest of the answer is lost; try again.") from error
        hop.steps_lost += 1
        if hop.steps_lost > STEPS_LOST:
            raise StageFailed(f"The server ran out of memory {hop.steps_lost} times in this answer; try again later.")
        _rewind(hop, error)
        hop.alone |= not isinstance(error, OutOfMemory)

    def resume(self, hop: Hop) -> messages.Resume | None:
        """Return how much output a retried hop must skip, since the client and the next hop already have it.

        Also contains the stages' checkpoints. None for the hop's first attempt.
        """
        if not hop.again:
            return None
        chunks = self._chunks
        return messages.Resume(dict(chunks.given), dict(hop.given), chunks.playing_s, self._log.chunks(), hop.alone)

    def _repeatable(self, hop: Hop) -> bool:
        """Whether no stage of the hop has delivered output that it would not repeat: two answers would be mixed."""
        return not any(self._unrepeatable(pool.info, hop) for pool in hop.pools(self._pools))

    def _unrepeatable(self, info: StageInfo, hop: Hop) -> frozenset[Kind]:
        """Return the kinds that a stage has delivered and would not repeat."""
        emitted = info.emits & _kinds(self._chunks.given)
        match info.replay:
            case "exact":
                return frozenset()
            case "continue":
                return emitted - (info.checkpoints & self._log.kinds) - kinds(Usage)  # Usage is the last chunk
            case "never":
                return emitted | info.feeds & _kinds(hop.given)

    async def _blame(self, host: RemoteWorker | None) -> Blame:
        """Decide which request may have caused the loss of a replica.

        Suspects are the requests for which the replica did something for the first time.

        - "this": it hung or crashed while this request was the only suspect. It is not retried.
        - "perhaps this": there were several suspects, or the process may have been killed. Each is retried alone.
        - "another": only other requests are suspects.
        - "nobody": there is no suspect. Then any request may be the cause, and LIVES is the bound.
        """
        this = self._chunks.request.id
        tried = host.trying if host is not None else frozenset[str]()
        if this not in tried:
            return "another" if tried else "nobody"
        if host is not None and len(tried) == 1 and (host.hung or await host.crashed()):
            return "this"
        return "perhaps this"


def _rewind(hop: Hop, error: ReplicaLost) -> None:
    """Let a hop read its input again. Raises the error if the input is no longer stored."""
    if not hop.inputs.whole:
        raise error
    hop.inputs.rewind()
    hop.again = True


def _kinds(given: Counts) -> frozenset[str]:
    return frozenset(map(kind_of, given))
