"""The family's stages stepped side by side in one thread: texts in, codes and sound out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine import Request, Sampling
from engine.chunk import Audio, Chunk, Codes, Text, texts
from engine.errors import EngineError
from engine.stream import Stream
from engine.worker.models.qwen3_tts import STAGES
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


@dataclass(slots=True)
class Frames:
    """The chunk policy: one frame, then as many as are told."""

    steady: int = 3

    def size(self, count: int) -> int:
        return 1 if count == 0 else self.steady

    def hurry(self) -> bool:
        return False


@dataclass(slots=True)
class Said:
    """What came of a request, and the errors that ended it."""

    frames: list[np.ndarray] = field(default_factory=list[np.ndarray])
    waves: list[np.ndarray] = field(default_factory=list[np.ndarray])
    marks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    error: str = ""
    fed: int = 0
    """Pieces of text that were there when the first frame was."""

    @property
    def codes(self) -> np.ndarray:
        return np.concatenate(self.frames) if self.frames else np.zeros((0, 16), np.int16)

    @property
    def wave(self) -> np.ndarray:
        return np.concatenate(self.waves) if self.waves else np.zeros(0, np.float32)


def stages(folder: Path, dtype: str = "float32", slots: int = 4, **options: Any) -> list[Any]:
    place = StageConfig(folder, "cpu", dtype, slots=slots, options=options)
    return [make(f"qwen3_tts.{name}", name, order, place) for order, name in enumerate(STAGES)]


def asked(id: str = "r", frames: int = 16, greedy: bool = True, **more: Any) -> Request:
    sampling = Sampling(greedy=greedy, seed=7)
    given: dict[str, Any] = {"messages": (), "session": id, "sampling": sampling, "max_audio_s": 0.08 * frames}
    return Request(id=id, **(given | more))


def whole(text: str) -> list[Text]:
    return list(texts([text]))


def letters(text: str, count: int = 1) -> list[Text]:
    """A text in pieces of so many characters."""
    return list(texts(text[i : i + count] for i in range(0, len(text), count)))


async def say(line: Sequence[Any], *spoken: tuple[Request, Sequence[Chunk]], steady: int = 3) -> list[Said]:
    """Requests that go through the stages side by side; a piece of text comes when a stage has nothing to do."""
    reqs = [[StageRequest(one, slot, Frames(steady)) for _ in line] for slot, (one, _) in enumerate(spoken)]
    streams = [[Stream(4096) for _ in line] for _ in spoken]
    said, texts = [Said() for _ in spoken], [list(pieces) for _, pieces in spoken]

    async def adapt(i: int, at: int) -> None:
        try:
            async with aclosing(line[at].adapt(reqs[i][at], streams[i][at])) as rows:
                async for row in rows:
                    reqs[i][at].pending.append(row)
        except EngineError as error:
            end(i, error)
        reqs[i][at].ended = True

    def end(i: int, error: EngineError) -> None:
        said[i].error = str(error)
        for req in reqs[i]:
            req.done = True

    def step(at: int, ready: list[int]) -> None:
        for i, chunks in zip(ready, line[at].step([reqs[i][at] for i in ready]), strict=True):
            if isinstance(chunks, EngineError):
                end(i, chunks)
                continue
            for chunk in chunks:
                note(said[i], chunk)
                if at + 1 < len(line) and chunk.kind in line[at].info.feeds:
                    streams[i][at + 1].put(chunk)
            if reqs[i][at].done and at + 1 < len(line):
                streams[i][at + 1].close()

    def feed() -> None:
        for pieces, inputs, one in zip(texts, streams, said, strict=True):
            if pieces:
                inputs[0].put(pieces.pop(0))
                one.fed += not one.frames
                if not pieces:
                    inputs[0].close()

    async with asyncio.TaskGroup() as adapters:
        for i, row in enumerate(reqs):
            for at, req in enumerate(row):
                line[at].open(req)
                adapters.create_task(adapt(i, at))
            if not texts[i]:
                streams[i][0].close()
        while not all(row[-1].done for row in reqs):
            await asyncio.sleep(0.0005)
            for at in reversed(range(len(line))):
                if ready := [i for i, row in enumerate(reqs) if row[at].ready]:
                    step(at, ready)
                    break
            else:
                feed()
        for row in streams:
            for stream in row:
                stream.close()
    return said


def note(said: Said, chunk: Any) -> None:
    if isinstance(chunk, Codes):
        said.frames.append(chunk.frames)
    elif isinstance(chunk, Audio):
        said.waves.append(chunk.wave)
        said.marks += chunk.marks
