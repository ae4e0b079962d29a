"""What a request was given before it came to this worker, and what is left here for who goes on if this one is lost.

A lost replica's stages have left the chunks that they keep, which are passed on again as they are, and the latest of
their states, behind which they go on. What lies between a state and what was given is made again, and left out. Pure:
no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine import wire
from engine.chunk import Checkpoint, Chunk, Counts
from engine.core import SPEAKER_RATE_HZ, StageInfo
from engine.tally import count, fresh


class Past:
    """Of one run: ``client`` and ``onward`` are what is still to be left out there."""

    def __init__(self, resume: wire.Resume | None = None) -> None:
        self.client: Counts = dict(resume.client) if resume else {}
        self.onward: Counts = dict(resume.onward) if resume else {}
        self.covered_s = 0.0
        """How much sound will not be made again."""
        self._kept: Sequence[Chunk] = resume.kept if resume else ()
        self._again: Counts = {}
        self._leaving: list[Chunk] = []

    def left(self, info: StageInfo) -> list[Chunk]:
        """What a stage had left."""
        return [chunk for chunk in self._kept if _left_by(info, chunk)]

    def begin(self, info: StageInfo, left: Sequence[Chunk]) -> Counts:
        """Expect a stage to go on behind its state, and make again what it left beyond; what the state covers."""
        covered: Counts = {}
        for chunk in left:
            if isinstance(chunk, Checkpoint):
                covered |= chunk.covers
            else:
                count(self._again, chunk)
        for key, number in covered.items():
            for tally in (self._again,) if key in self._again else (self.client, self.onward):
                tally[key] = tally.get(key, 0) - number
        self.covered_s += covered.get("audio", 0) / SPEAKER_RATE_HZ
        return covered

    def new(self, info: StageInfo, chunk: Chunk) -> Chunk | None:
        """What of a chunk that a stage has made was not passed on by ``left`` already."""
        return fresh(self._again, chunk) if chunk.kind in info.keeps else chunk

    def leave(self, chunk: Chunk) -> None:
        """Have something kept by the server: it goes with what leaves next."""
        self._leaving.append(chunk)

    def leaving(self) -> tuple[Chunk, ...]:
        """What is to go now, once."""
        leaving, self._leaving = tuple(self._leaving), []
        return leaving


def _left_by(info: StageInfo, chunk: Chunk) -> bool:
    return chunk.stage == info.name if isinstance(chunk, Checkpoint) else chunk.kind in info.keeps
