"""Measure a local TTS model in a worker: its first sound, its speed, and how fast an aborted answer frees its slot.

    python -m benchmarks.voices --weights FOLDER [--use tts.pocket] [--threads N] [--rounds N]

first sound    from the first text of an answer to its first audio, p50; and the same for the library alone
speed          seconds of computing per second of audio, one answer alone; above 1 playback stutters
leave          from aborting an answer until its slot is free, p50 and worst, and the samples emitted after the abort
twenty leave   the first sound of an answer that begins as twenty others are aborted, and of one alone
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from engine.chunk import Audio, Text
from engine.core import SPEAKER_RATE_HZ, Request
from engine.deployment.config import ChunkSpec
from engine.ipc import messages
from engine.worker.loop.worker import Worker
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import ClauseSpeaker, Saying

FIRST = "Hello there, how are you?"
TEXT = "It is a fine day today, and we go to the park with all of our friends. They will be glad to see us again. "
SLOTS = 32
LONGEST_S = 4.0
"""Longest audio of an answer in seconds."""
LEAVE_MS = 100.0
LOOK_S = 0.0005
UNCOUNTED = 2
"""Warm-up rounds that are not counted."""
print_ = Console(width=120, highlight=False).print


@dataclass(slots=True)
class Run:
    """One answer of the worker."""

    id: str
    began_s: float
    audio: list[tuple[float, Audio]] = field(default_factory=list[tuple[float, Audio]])
    """Pieces of audio, each with the time at which it was emitted."""
    sounds: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def first_s(self) -> float:
        """Seconds to the first sound."""
        return self.audio[0][0] - self.began_s

    @property
    def samples(self) -> int:
        return sum(len(audio.wave) for _, audio in self.audio)


class VoiceWorker:
    """A worker that hosts only a voice. Answers have at most ``longest_s`` seconds of audio."""

    def __init__(self, stage: Any, longest_s: float) -> None:
        self._longest_s = longest_s
        self._slots = stage.info.slots
        self._runs: dict[str, Run] = {}
        self._worker = Worker({"voice": stage}, ChunkSpec(), {"voice": self._slots}, self._sent)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[VoiceWorker]:
        task = asyncio.create_task(self._worker.serve())
        await asyncio.sleep(0)
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    def begin(self, text: str) -> Run:
        """Begin to speak a text, which arrives word by word."""
        run = Run(f"r{len(self._runs)}", time.perf_counter())
        self._runs[run.id] = run
        request = Request(id=run.id, session=run.id, messages=(), say=text, max_audio_s=self._longest_s)
        self._worker.receive(messages.Open(run.id, request, ("voice",), 1 << 20))
        for word in re.finditer(r"\s*\S+\s*", text):
            self._worker.receive(messages.Feed(run.id, Text(word[0], word.start())))
        self._worker.receive(messages.End(run.id))
        return run

    async def first_s(self, text: str) -> float:
        """Return the seconds until the first sound, then abort the answer."""
        run = self.begin(text)
        await run.sounds.wait()
        await self._leave(run)
        return run.first_s

    async def whole_s(self, text: str) -> tuple[float, float]:
        """Return the seconds of computing for a whole answer, and the seconds of audio."""
        run = self.begin(text)
        await run.over.wait()
        return time.perf_counter() - run.began_s, run.samples / SPEAKER_RATE_HZ

    async def left_s(self, text: str) -> tuple[float, int]:
        """Abort an answer after its first sound, as a step begins. Returns the seconds until the slot is free, and the
        samples emitted meanwhile.
        """
        run = self.begin(text)
        await run.sounds.wait()
        while not self._worker.in_step:  # noqa: ASYNC110 - the worst moment
            await asyncio.sleep(0)
        given, began_s = run.samples, time.perf_counter()
        await self._leave(run)
        return time.perf_counter() - began_s, run.samples - given

    async def _leave(self, run: Run) -> None:
        """Abort a run, and wait until all slots are free."""
        self._worker.receive(messages.Close(run.id))
        while self._worker.free["voice"] < self._slots:  # noqa: ASYNC110 - a worker does not report that a slot is free
            await asyncio.sleep(LOOK_S)

    async def after_twenty_s(self, text: str) -> float:
        """Return the first sound in seconds of an answer that begins as twenty others are aborted."""
        runs = [self.begin(TEXT * 4) for _ in range(20)]
        sounds = [asyncio.create_task(run.sounds.wait()) for run in runs]
        await asyncio.wait(sounds, return_when="FIRST_COMPLETED")
        for run in runs:
            self._worker.receive(messages.Close(run.id))
        for sound in sounds:
            sound.cancel()
        return await self.first_s(text)

    def _sent(self, message: messages.Message) -> None:
        match message:
            case messages.Emit(run, Audio() as audio):
                self._runs[run].audio.append((time.perf_counter(), audio))
                self._runs[run].sounds.set()
            case messages.End(run):
                self._runs[run].over.set()
            case messages.Failed(_, _, reason):
                sys.exit(f"error: {reason}")
            case _:
                pass


def direct_s(stage: Any, text: str) -> float:
    """Return the seconds until the library, called directly, returns its first piece; 0 if it synthesizes whole
    clauses.
    """
    if not isinstance(stage, ClauseSpeaker) or stage.whole:
        return 0.0
    began_s = time.perf_counter()
    saying = Saying(text, stage.info.facets.voices[0].id if stage.info.facets.voices else "")
    next(wave for wave, _ in stage.pieces(saying) if len(wave))
    return time.perf_counter() - began_s


async def measured(stage: Any, rounds: int) -> bool:
    async with VoiceWorker(stage, LONGEST_S).serving() as worker:
        alone = [(direct_s(stage, FIRST), await worker.first_s(FIRST)) for _ in range(rounds + UNCOUNTED)][UNCOUNTED:]
        library_ms, first_ms = (1000 * statistics.median(times) for times in zip(*alone, strict=True))
        print_(f"first sound    {first_ms:.1f} ms, of the library {library_ms:.1f} ms")
        whole = [await worker.whole_s(TEXT) for _ in range(max(3, rounds // 4))]
        print_(f"speed          {sum(took for took, _ in whole) / sum(long for _, long in whole):.3f}")
        left = [await worker.left_s(TEXT * 4) for _ in range(rounds)]
        leave_ms, samples = [1000 * took for took, _ in left], sum(count for _, count in left)
        print_(f"leave          {statistics.median(leave_ms):.1f} ms, worst {max(leave_ms):.1f} ms; {samples} samples")
        behind = [await worker.after_twenty_s(FIRST) for _ in range(max(3, rounds // 4))]
        print_(f"twenty leave   {1000 * statistics.median(behind):.1f} ms, alone {first_ms:.1f} ms")
    return max(leave_ms) <= LEAVE_MS and samples == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--use", default="tts.pocket")
    parser.add_argument("--weights", type=Path, required=True, help="folder with the model of the voice")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    stage = make(given.use, "voice", 0, StageConfig(weights=given.weights, threads=given.threads, slots=SLOTS))
    sys.exit(not asyncio.run(measured(stage, given.rounds)))


if __name__ == "__main__":
    main()
