"""A family's stages stepped side by side in one thread, with nothing between them: for what no engine is needed for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from engine import Request, Sampling
from engine.chunk import Audio, Codes, Text
from engine.errors import EngineError
from engine.stream import Stream
from engine.worker.models.qwen3_omni import STAGES
from engine.worker.process.stage_loader import make
from engine.worker.stage import Stage, StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS
from tests.engine.worker.pretend import Device
from tests.oracles.talk import request


class Frames:
    """The chunk policy: as many frames as have come, up to two."""

    def size(self, count: int) -> int:
        return 1 + (count > 0)

    def hurry(self) -> bool:
        return False


Steps = list[tuple[str, int, Counter[tuple[str, str]]]]
"""Of each step its stage, how many requests it had, and where it waited for the device."""


def stages(folder: Any, device: str, dtype: str = "float32", slots: int = 6, **options: Any) -> list[Stage]:
    place = StageConfig(folder, device, dtype, slots=slots, options={"context": 1024, "piece": 64, **options})
    return [make(f"qwen3_omni.{name}", name, order, place) for order, name in enumerate(STAGES)]


async def drive(line: Sequence[Stage], asked: Sequence[Request], device: Device | None = None) -> tuple[Any, Steps]:
    """Answers (token ids, codes, sound) of requests that go through the stages side by side, in this very thread."""
    reqs = [[StageRequest(one, slot, Frames()) for _ in line] for slot, one in enumerate(asked)]
    streams = [[Stream(4096) for _ in line] for _ in asked]
    said = [([], [], []) for _ in asked]
    steps: Steps = []

    async def adapt(stage: Stage, req: StageRequest, inputs: Stream) -> None:
        async with aclosing(stage.adapt(req, inputs)) as rows:
            async for row in rows:
                req.pending.append(row)
                req.waits = False
        req.ended, req.waits = True, False

    def step(at: int, stage: Stage, ready: list[int]) -> None:
        if device is not None:
            device.taken()
        results = stage.step([reqs[i][at] for i in ready])
        steps.append((stage.info.name, len(ready), Counter() if device is None else device.taken()))
        for i, chunks in zip(ready, results, strict=True):
            assert not isinstance(chunks, EngineError), chunks
            for chunk in chunks:
                note(i, chunk)
                if at + 1 < len(line) and chunk.kind in stage.info.feeds:
                    streams[i][at + 1].put(chunk)
            if reqs[i][at].done and at + 1 < len(line):
                streams[i][at + 1].close()
            if reqs[i][at].done:
                make_room(at)

    def make_room(at: int) -> None:
        """Have those step again that found no room at a stage, as a worker does."""
        for row in reqs:
            row[at].waits = False

    def note(i: int, chunk: Any) -> None:
        if isinstance(chunk, Text):
            said[i][0].extend(chunk.token_ids)
        elif isinstance(chunk, Codes):
            said[i][1].append(chunk.frames)
        elif isinstance(chunk, Audio):
            said[i][2].append(chunk.wave)

    async with asyncio.TaskGroup() as adapters:
        for row, inputs in zip(reqs, streams, strict=True):
            for stage, req, stream in zip(line, row, inputs, strict=True):
                stage.open(req)
                adapters.create_task(adapt(stage, req, stream), name=stage.info.name)
            inputs[0].close()
        while not all(row[-1].done for row in reqs):
            await asyncio.sleep(0.001)
            for at, stage in reversed(list(enumerate(line))):
                if ready := [i for i, row in enumerate(reqs) if row[at].ready]:
                    step(at, stage, ready)
                    break
    return [(ids, np.concatenate(codes).tolist(), np.concatenate(wave)) for ids, codes, wave in said], steps


def asked(*titles: str) -> list[Request]:
    """Greedy and drawn."""
    return [
        request(f"{i}", PROMPTS[title], 5, 5, sampling=Sampling(greedy=i % 2 == 0, temperature=1.0, seed=i))
        for i, title in enumerate(titles)
    ]
