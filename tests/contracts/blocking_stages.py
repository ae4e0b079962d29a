"""Stages in a user's own file that do not come back where the text says so: one in a native call, one at its server."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from engine.chunk import Audio, Chunk, Text, Usage, VoiceText, kinds
from engine.core import Request, StageInfo, TextPart
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed


class Asks(Streamed):
    """Repeats what it is told, as if it had asked a server; to "never" that server has no answer."""

    info = StageInfo(emits=kinds(Text, Usage), feeds=kinds(Text), answers=True)

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        (text,) = (part.text for part in request.messages[-1].parts if isinstance(part, TextPart))
        if text == "never":
            await asyncio.Event().wait()
        yield Text(text, 0)
        yield Usage()


class Voice:
    """10 ms of silence for each word, but for these:

    hang   a call that never returns
    hold   the same, and no other thread runs meanwhile
    wait   for a library's thread, which never ends
    long   no other thread runs for longer than a worker may be silent; then it returns
    """

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(takes=kinds(Text, VoiceText), emits=kinds(Audio), slots=config.slots, blocking=True)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)

    def open(self, req: StageRequest) -> None:
        pass

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            if isinstance(chunk, Text | VoiceText):
                yield chunk.text.strip()

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Half a second where it will not come back, so that the test is over soon."""
        words = {word for req in reqs for word in req.pending}
        return 0.5 if words & {"hang", "hold"} else 60.0

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk]]:
        return [self._speak(req) for req in reqs]

    def _speak(self, req: StageRequest) -> Sequence[Chunk]:
        if not req.pending:
            req.done = req.ended
            return []
        match req.pending.popleft():
            case "hang":
                _pause_for_ever(ctypes.CDLL(None))
            case "hold":
                _pause_for_ever(ctypes.PyDLL(None))
            case "wait":
                ThreadPoolExecutor().submit(threading.Event().wait).result()
            case "long":
                ctypes.PyDLL(None).usleep(1_600_000)
            case _:
                pass
        return [Audio(np.zeros(240, np.float32))]


def _pause_for_ever(libc: Any) -> None:
    while True:  # a signal ends one
        libc.pause()
