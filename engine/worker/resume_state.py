"""What a request was given before it came to this worker, and the checkpoints that its successor will need.

The server holds the chunks that a lost replica's stages checkpointed, which are passed on again as they are, and the
latest of their states, behind which they go on. What lies between a state and what was given is made again, and
left out. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine import wire
from engine.chunk import Checkpoint, Chunk, Counts
from engine.core import SPEAKER_RATE_HZ, StageInfo
from engine.delivered import count, fresh


class ResumeState:
    """Of one run: ``client`` and ``onward`` are what is still to be left out there."""

    def __init__(self, resume: wire.Resume | None = None) -> None:
        self.client: Counts = dict(resume.client) if resume else {}
        self.onward: Counts = dict(resume.onward) if resume else {}
        self.covered_s = 0.0
        """How much sound will not be made again."""
        self._kept: Sequence[Chunk] = resume.kept if resume else ()
        self._again: Counts = {}
        self._unsent: list[Chunk] = []

    def checkpoints(self, info: StageInfo) -> list[Chunk]:
        """What a stage had checkpointed."""
        return [chunk for chunk in self._kept if _is_checkpoint(info, chunk)]

    def begin(self, info: StageInfo, checkpoints: Sequence[Chunk]) -> Counts:
        """Expect a stage to go on behind its state, and make again what came beyond it; what the state covers."""
        covered: Counts = {}
        for chunk in checkpoints:
            if isinstance(chunk, Checkpoint):
                covered |= chunk.covers
            else:
                count(self._again, chunk)
        for key, number in covered.items():
            for counts in (self._again,) if key in self._again else (self.client, self.onward):
                counts[key] = counts.get(key, 0) - number
        self.covered_s += covered.get("audio", 0) / SPEAKER_RATE_HZ
        return covered

    def new(self, info: StageInfo, chunk: Chunk) -> Chunk | None:
        """What of a chunk that a stage has made was not among its ``checkpoints``."""
        return fresh(self._again, chunk) if chunk.kind in info.checkpoints else chunk

    def checkpoint(self, chunk: Chunk) -> None:
        """Have the server store a chunk: it travels with the next one that is sent anyway."""
        self._unsent.append(chunk)

    def take_checkpoints(self) -> tuple[Chunk, ...]:
        """Those that are to be sent now, once."""
        unsent, self._unsent = tuple(self._unsent), []
        return unsent


def _is_checkpoint(info: StageInfo, chunk: Chunk) -> bool:
    return chunk.stage == info.name if isinstance(chunk, Checkpoint) else chunk.kind in info.checkpoints
