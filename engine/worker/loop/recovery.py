"""Recovery in the worker: continue a run of a lost replica, and send checkpoints so that a successor could do the same.

The server stores the chunks that a lost replica's stages checkpointed, and their latest states. The chunks are passed
on unchanged, and the stages continue from their states. Output between a state and the delivered position is computed
again and left out. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.chunk import Checkpoint, Chunk, Counts
from engine.core import SPEAKER_RATE_HZ, StageInfo
from engine.delivered import count, fresh
from engine.ipc import messages
from engine.worker.loop.role_group import RoleGroup
from engine.worker.stage_request import StageRequest


class RunRecovery:
    """The recovery state of one run.

    Guided and joined groups have no checkpoints: they compute everything again.
    """

    def __init__(self, resume: messages.Resume | None = None) -> None:
        self.alone = resume is not None and resume.alone
        """Whether the run must step alone, because it may have caused the failure of a step or a replica."""
        self.playing_s = resume.playing_s if resume else None
        self.given_s = resume.client.get("audio", 0) / SPEAKER_RATE_HZ if resume else 0.0
        """Seconds of audio that the listener has received from the lost replica."""
        self.covered_s = 0.0
        """Seconds of that audio that are not computed again."""
        self.whole = resume is not None and "usage" in resume.client
        """Whether the answer's text was complete."""
        self._client: Counts = dict(resume.client) if resume else {}
        self._onward: Counts = dict(resume.onward) if resume else {}
        self._kept: Sequence[Chunk] = resume.kept if resume else ()
        self._again: Counts = {}
        self._unsent: list[Chunk] = []

    def kept(self, info: StageInfo, roles: int = 1) -> list[Chunk]:
        """Return the chunks that a stage had checkpointed."""
        return [chunk for chunk in self._kept if _is_checkpoint(info, chunk)] if roles == 1 else []

    def begin(self, req: StageRequest) -> None:
        """Set up the counts of what a stage computes again after its last state."""
        covered: Counts = {}
        for chunk in req.kept:
            if isinstance(chunk, Checkpoint):
                covered |= chunk.covers
            else:
                count(self._again, chunk)
        for key, number in covered.items():
            for counts in (self._again,) if key in self._again else (self._client, self._onward):
                counts[key] = counts.get(key, 0) - number
        self.covered_s += covered.get("audio", 0) / SPEAKER_RATE_HZ
        req.made |= covered

    def passed_on(self, group: RoleGroup) -> Iterator[Chunk]:
        """Return the chunks that a stage had checkpointed, which are passed on unchanged."""
        return (chunk for chunk in group.main.kept if chunk.kind in group.stage.info.checkpoints)

    def made(self, req: StageRequest, chunk: Chunk) -> Chunk | None:
        """Return the new part of a chunk that a stage has produced; None if there is none. Checkpoints are stored."""
        info, single = req.info, len(req.roles) == 1
        if isinstance(chunk, Checkpoint):
            if single:
                covers = {} if info.replay == "continue" else dict(req.made)  # its stored chunks are replayed in full
                self._unsent.append(Checkpoint(chunk.state, info.name, covers))
            return None
        count(req.made, chunk)
        if chunk.kind not in info.checkpoints:
            return chunk
        new = fresh(self._again, chunk)
        if new is not None and single and req.stored:
            self._unsent.append(new)
        return new

    def for_client(self, chunk: Chunk) -> Chunk | None:
        """Return the part of a chunk that the client has not received before."""
        return fresh(self._client, chunk)

    def for_next_hop(self, chunk: Chunk) -> Chunk | None:
        """Return the part of a chunk that the next hop has not received before."""
        return fresh(self._onward, chunk)

    def take_checkpoints(self) -> tuple[Chunk, ...]:
        """Remove and return the checkpoints that the server should store. They are sent with the next chunk."""
        unsent = tuple(self._unsent)
        self._unsent = []
        return unsent


def _is_checkpoint(info: StageInfo, chunk: Chunk) -> bool:
    return chunk.stage == info.name if isinstance(chunk, Checkpoint) else chunk.kind in info.checkpoints
