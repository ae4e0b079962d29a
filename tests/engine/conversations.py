"""Duplex sessions at a worker, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from engine.chunk import Audio, Speech
from engine.core import DuplexCounts, Message, Pcm, Request
from engine.ipc import messages
from engine.worker.stage import Stage
from tests.engine.fakes import Desk, only, turns, working

PACKET_MS, PACKET = 20, 480


class Clock:
    """The time of the worker and of its event loop, in whole milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> float:
        return self.now_ms / 1000

    def pass_s(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class Conversations:
    """A desk whose clock the test moves, with microphones that send packets of 20 ms."""

    def __init__(self, desk: Desk, clock: Clock) -> None:
        self.desk = desk
        self._clock = clock
        self._microphones: dict[str, Iterator[Pcm]] = {}

    def join(self, run: str, sound: Pcm | None = None, credit: int = 1 << 20, prompt: tuple[Message, ...] = ()) -> None:
        asked = Request(id=run, session="s", messages=prompt, live=True)
        self.desk.put(messages.Open(run, asked, ("duplex",), credit))
        if sound is not None:
            self._microphones[run] = iter(np.split(sound, len(sound) // PACKET))

    def leave(self, run: str) -> None:
        self._microphones.pop(run, None)
        self.desk.put(messages.Close(run))

    async def last(self, seconds: float) -> None:
        """Let this time pass, in steps of a packet."""
        end_ms = self._clock.now_ms + round(seconds * 1000)
        next_ms = self._clock.now_ms
        while self._clock.now_ms < end_ms:
            next_ms += PACKET_MS
            self._clock.now_ms = max(self._clock.now_ms, next_ms)
            for run, pieces in self._microphones.items():
                if (piece := next(pieces, None)) is not None:
                    self.desk.put(messages.Feed(run, Speech(piece)))
            await turns(12)

    @property
    def counts(self) -> DuplexCounts:
        return self.desk.worker.beat("w").duplex["duplex"]

    def chunks(self, run: str) -> list[Any]:
        return [emit.chunk for emit in self.desk.of(messages.Emit, run)]

    def numbers(self, run: str) -> list[int | None]:
        return [chunk.frame for chunk in only(Audio, self.chunks(run))]


@asynccontextmanager
async def conversing(*stages: Stage, clock: Clock) -> AsyncGenerator[Conversations]:
    loop = asyncio.get_running_loop()
    real = loop.time
    loop.time = clock  # type: ignore[method-assign]
    loop.slow_callback_duration = 1e9  # simulated steps are long
    try:
        async with working(*stages, max_batch=8, clock=clock) as desk:
            yield Conversations(desk, clock)
    finally:
        loop.time = real  # type: ignore[method-assign]


def speech(*spoken: tuple[float, float]) -> Pcm:
    """Sound with an amplitude for each part: pairs of seconds and an amplitude from 0 to 1."""
    parts = [np.full(round(seconds / 0.02) * PACKET, round(level * 32767), np.int16) for seconds, level in spoken]
    return np.concatenate(parts)
