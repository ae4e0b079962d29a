"""Run the voice's two stages without an engine, in the pieces a listener would get; for ``meter``, and to listen.

python -m engine.training.nano.speak "Hello there." -o out.wav [--voice slt] [--weights FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from engine.chunk import Audio, Checkpoint, Chunk, texts
from engine.core import SPEAKER_RATE_HZ, Request, Sampling
from engine.stream import of
from engine.worker.loop.role_group import RoleGroup
from engine.worker.models.nano.code2wav import Code2Wav
from engine.worker.models.nano.talker import Talker
from engine.worker.models.nano.voice import VOICES
from engine.worker.stage import Stage, StageConfig
from engine.worker.stage_request import StageRequest


@dataclass(frozen=True, slots=True)
class Steady:
    """Chunks of constant size. The first holds one frame, as for a waiting listener."""

    frames: int
    first: int = 1

    def size(self, count: int) -> int:
        return self.frames if count else min(self.first, self.frames)

    def hurry(self) -> bool:
        return False


class Voice:
    """Both stages of one voice."""

    def __init__(self, weights: Path | None = None, name: str = VOICES[0]) -> None:
        place = StageConfig(weights=weights, slots=8)
        self.name = name
        self.talker, self.code2wav = Talker(place), Code2Wav(place)

    def say(self, text: str, frames: int = 5, speed: float = 1.0, guidance: float = 1.0) -> NDArray[np.float32]:
        """Feed text word by word, render ``frames`` codec frames at a time, and return samples at 24 kHz."""
        words = list(texts(text.replace(" ", " \0").split("\0")))
        return sound(asyncio.run(self.chunks(words, Steady(frames), speed, guidance)))

    async def chunks(
        self, words: Sequence[Chunk], pace: Steady, speed: float = 1.0, guidance: float = 1.0
    ) -> list[Chunk]:
        request = asked(speed=speed, guidance=guidance, voice=self.name)
        codes = [chunk async for chunk in drive(self.talker, opened(self.talker, request, pace), words)]
        return [chunk async for chunk in drive(self.code2wav, StageRequest(request, 0, pace), codes)]


def asked(guidance: float = 1.0, **fields: float | str) -> Request:
    """Return a request for speech; with guidance it has a second, negative role."""
    roles = ("main",) if guidance == 1 else ("main", "negative")
    sampling = Sampling(guidance=guidance)
    return Request(id="eval", session="eval", messages=(), sampling=sampling, roles=roles, **fields)  # pyright: ignore[reportArgumentType]


def opened(talker: Stage, request: Request, pace: Steady) -> StageRequest:
    """Return a request at the talker, with all its roles."""
    return RoleGroup(talker, [StageRequest(request, slot, pace, role) for slot, role in enumerate(request.roles)]).main


async def drive(stage: Stage, req: StageRequest, inputs: Iterable[Chunk]) -> AsyncGenerator[Chunk]:
    """Run one request to its end like the step loop: a new row whenever the stage has used up the last."""
    for one in req.roles.values():
        stage.open(one)
    rows = stage.adapt(req, of(inputs))
    while not req.done:
        if not req.ready:
            try:
                req.pending.append(await anext(rows))
            except StopAsyncIteration:
                req.ended = True
        if req.ready:
            chunks = stage.step(list(req.roles.values()))[0]
            if isinstance(chunks, Exception):
                raise chunks
            for chunk in chunks:
                if not isinstance(chunk, Checkpoint):
                    yield chunk


def sound(chunks: Iterable[Chunk]) -> NDArray[np.float32]:
    pieces = [chunk.wave for chunk in chunks if isinstance(chunk, Audio)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("-o", "--out", type=Path, default=Path("out.wav"))
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    args = parser.parse_args()
    soundfile.write(args.out, Voice(args.weights, args.voice).say(args.text), SPEAKER_RATE_HZ)


if __name__ == "__main__":
    main()
