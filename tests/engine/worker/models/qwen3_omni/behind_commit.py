"""The CPU time that an answer takes after the commit of a turn with a camera, compared with a turn without one.

All stages run in this process, which counts its own CPU time, so that other work on the machine matters little.
*Settled*: the commit comes once everything before it was taken in. *At once*: it comes directly after the last words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np

from engine import MIC_RATE_HZ, Audio, Engine, Request, Sampling, Speech, VideoFrame
from engine.chunk import Chunk
from tests.engine.worker.models.qwen3_omni.settled import Settled

BLOCK = 512  # samples of a microphone's block
SPOKEN_S = 0.6
"""Seconds in which the words of a turn without frames are taken in, wherever there is a processor for them."""


class Turn:
    """One turn; ``ended_s`` is the processor's time at its commit."""

    ended_s = 0.0

    def __init__(self, seed: int, seconds: float, fps: float) -> None:
        self._dice = np.random.default_rng(seed)
        self._seconds = seconds
        self._fps = fps

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Its words, and frames at their times; without frames where ``fps`` is 0."""
        pcm, due_s = self._dice.integers(-4000, 4000, int(self._seconds * MIC_RATE_HZ), dtype=np.int16), 0.0
        for at in range(0, len(pcm), BLOCK):
            if self._fps and at >= due_s * MIC_RATE_HZ:
                yield VideoFrame(self._dice.integers(0, 255, (67, 90, 3), dtype=np.uint8), due_s)
                due_s += 1 / self._fps
            yield Speech(pcm[at : at + BLOCK])

    async def until_commit(self, settled: Settled | None) -> AsyncIterator[Chunk]:
        """The same up to its end."""
        async for chunk in settled.paced(self.chunks()) if settled and self._fps else self.chunks():
            yield chunk
        if settled:
            await asyncio.sleep(SPOKEN_S)
        self.ended_s = time.process_time()


async def behind_commit_ms(engine: Engine, id: str, turn: Turn, camera: bool, settled: Settled | None) -> float:
    """Milliseconds of the processor from the commit to the first sound."""
    request = Request(
        id=id,
        session=id,
        messages=(),
        live=True,
        camera=camera,
        sampling=Sampling(greedy=True),
        max_text_tokens=4,
        max_audio_s=0.5,
    )
    async with engine.open(request, turn.until_commit(settled)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                return (time.process_time() - turn.ended_s) * 1000
    raise SystemExit("the answer had no sound")


async def pairs_ms(engine: Engine, pairs: int, seconds: float, settled: Settled | None) -> list[tuple[float, float]]:
    """Milliseconds of the processor behind the commits of turns that are spoken, and of the same that are shown, too;
    in turn, behind a rehearsal."""
    fps, found = engine.model.camera.fps, list[tuple[float, float]]()
    for number in range(pairs + 1):
        took = {
            rate: await behind_commit_ms(
                engine, f"{settled is None}-{number}-{rate}", Turn(number, seconds, rate), rate > 0, settled
            )
            for rate in ((0.0, fps) if number % 2 else (fps, 0.0))
        }
        found += [(took[0.0], took[fps])] if number else []
    return found
