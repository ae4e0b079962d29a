"""A family's own stages, stepped one after the other with nothing in between: the lower bound for a first sound.

There is no loop, scheduler, process or network. Requests pass through the stages as one batch, and only the time inside
``step`` counts. Everything an engine takes beyond that is its own overhead.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.peer import Question, Subject, Times
from engine.chunk import Audio
from engine.core import Message, Request, Sampling, TextPart
from engine.errors import EngineError
from engine.stream import Stream
from engine.worker.pace import OneFrame
from engine.worker.process.stage_loader import make
from engine.worker.stage import Stage, StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.uses import line_of

DEPTH = 4096  # chunks of one answer; large enough to never wait


@dataclass(slots=True, eq=False)
class Line:
    """One request's state at each stage, and the streams in between."""

    reqs: list[StageRequest]
    streams: list[Stream]
    first_s: float | None = None


@dataclass(slots=True)
class Bare:
    """All stages of a family in this process."""

    stages: list[Stage]
    spent_s: float = 0.0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(cls, subject: Subject) -> Bare:
        weights = Path(subject.weights) if subject.weights else None
        config = StageConfig(weights, threads=subject.threads, slots=subject.slots, options=subject.options)
        line = line_of(subject.model)
        return cls([make(f"{subject.model}.{name}", name, order, config) for order, name in enumerate(line)])

    @property
    def frame_s(self) -> float:
        """Frame length of the stage that makes audio."""
        return next(stage.info.facets.frame_s for stage in self.stages if stage.info.facets.frame_s)

    def answer(self, question: Question) -> Times:
        """Return the accumulated computing time of all stages at each request's first audio."""
        return asyncio.run(self._first_sounds(question))

    async def _first_sounds(self, question: Question) -> Times:
        self.spent_s = 0.0
        self._wake = asyncio.Event()
        lines = [self._line(slot, question) for slot in range(question.count)]
        async with asyncio.TaskGroup() as adapters:
            tasks = [
                adapters.create_task(self._adapt(stage, req, stream), name=stage.info.name)
                for line in lines
                for stage, req, stream in zip(self.stages, line.reqs, line.streams, strict=True)
            ]
            while silent := [line for line in lines if line.first_s is None]:
                self._wake.clear()
                if not self._step(silent):
                    await self._wake.wait()
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
        return Times(first_s=tuple(line.first_s or 0.0 for line in lines), whole_s=self.spent_s, frames=1)

    def _line(self, slot: int, question: Question) -> Line:
        id = f"bare-{next(self._ids)}"  # a new session, so that nothing is cached
        request = Request(
            id=id,
            session=id,
            messages=(Message("user", (TextPart(question.text),)),),
            sampling=Sampling(greedy=True),
            max_text_tokens=question.tokens,
            max_audio_s=question.frames * self.frame_s,
        )
        self.stages = [stage for stage in self.stages if not stage.info.hears_only]  # there is no speech input
        stages = self.stages
        line = Line([StageRequest(request, slot, OneFrame()) for _ in stages], [Stream(DEPTH) for _ in stages])
        for stage, req in zip(stages, line.reqs, strict=True):
            stage.open(req)
        line.streams[0].close()
        return line

    async def _adapt(self, stage: Stage, req: StageRequest, inputs: Stream) -> None:
        async with aclosing(stage.adapt(req, inputs)) as rows:
            async for row in rows:
                req.pending.append(row)
                self._wake.set()
        req.ended = True
        self._wake.set()

    def _step(self, lines: Sequence[Line]) -> bool:
        """Run one step of the earliest stage that delays any request, with all requests that wait for it."""
        for at, stage in enumerate(self.stages):
            waiting = [line for line in lines if line.reqs[at].ready and not _further(line, at)]
            if waiting:
                self._compute(stage, at, waiting)
                return True
        return False

    def _compute(self, stage: Stage, at: int, lines: Sequence[Line]) -> None:
        begun_s = time.perf_counter()
        results = stage.step([line.reqs[at] for line in lines])
        self.spent_s += time.perf_counter() - begun_s
        for line, chunks in zip(lines, results, strict=True):
            if isinstance(chunks, EngineError):
                raise chunks
            for chunk in chunks:
                if isinstance(chunk, Audio) and line.first_s is None:
                    line.first_s = self.spent_s
                if chunk.kind in stage.info.feeds and at + 1 < len(self.stages):
                    line.streams[at + 1].put(chunk)
            if line.reqs[at].done and at + 1 < len(self.stages):
                line.streams[at + 1].close()


def _further(line: Line, at: int) -> bool:
    """Return whether a later stage has work for this request, so that this one need not run now."""
    return any(req.ready or len(stream) for req, stream in list(zip(line.reqs, line.streams, strict=True))[at + 1 :])


PEER = Bare.of
