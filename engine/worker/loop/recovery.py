"""A run that goes on where a replica was lost, and what it sends so that a successor can do the same.

The server holds the chunks that a lost replica's stages checkpointed, which are passed on again as they are, and the
latest of their states, behind which they go on. What lies between a state and what was given is made again, and
left out. Pure: no I/O, no clock.
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
    """One run's recovery: the chunks it was given elsewhere, those of them that its stages make again, and its
    checkpoints.

    A joined or guided group makes all again: it has no checkpoints.
    """

    def __init__(self, resume: messages.Resume | None = None) -> None:
        self.alone = resume is not None and resume.alone
        """Whether the run steps with no other, since it may be what broke a step, or a replica."""
        self.playing_s = resume.playing_s if resume else None
        self.given_s = resume.client.get("audio", 0) / SPEAKER_RATE_HZ if resume else 0.0
        """Seconds of sound that the listener has got elsewhere."""
        self.covered_s = 0.0
        """Seconds of that sound that will not be made again."""
        self.whole = resume is not None and "usage" in resume.client
        """Whether the answer's text was over."""
        self._client: Counts = dict(resume.client) if resume else {}
        self._onward: Counts = dict(resume.onward) if resume else {}
        self._kept: Sequence[Chunk] = resume.kept if resume else ()
        self._again: Counts = {}
        self._unsent: list[Chunk] = []

    def kept(self, info: StageInfo, roles: int = 1) -> list[Chunk]:
        """Return the chunks that a stage had checkpointed."""
        return [chunk for chunk in self._kept if _is_checkpoint(info, chunk)] if roles == 1 else []

    def begin(self, req: StageRequest) -> None:
        """Expect a stage to go on behind its state, and to make again what came beyond that."""
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
        """The chunks that a stage had checkpointed, for whoever takes them."""
        return (chunk for chunk in group.main.kept if chunk.kind in group.stage.info.checkpoints)

    def made(self, req: StageRequest, chunk: Chunk) -> Chunk | None:
        """Return the part of a chunk that a stage has made which is new, and so goes where such chunks go; checkpoints
        are noted."""
        info, single = req.info, len(req.roles) == 1
        if isinstance(chunk, Checkpoint):
            if single:
                covers = {} if info.replay == "continue" else dict(req.made)  # it gives all of it again
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
        """Return the part of a chunk that the client was not given elsewhere."""
        return fresh(self._client, chunk)

    def for_next_hop(self, chunk: Chunk) -> Chunk | None:
        """Return the part of a chunk that the next worker was not given by another."""
        return fresh(self._onward, chunk)

    def take_checkpoints(self) -> tuple[Chunk, ...]:
        """Take the checkpoints that the server is to store; they travel with a chunk that is sent anyway."""
        unsent = tuple(self._unsent)
        self._unsent = []
        return unsent


def _is_checkpoint(info: StageInfo, chunk: Chunk) -> bool:
    return chunk.stage == info.name if isinstance(chunk, Checkpoint) else chunk.kind in info.checkpoints
