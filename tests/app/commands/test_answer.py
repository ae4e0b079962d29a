"""An answer of a command: its sound goes on as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import numpy as np

from app.commands.answer import ReceivedAnswer, Show, answer
from app.commands.sink import Sink
from app.commands.source import Answered, Answerer
from engine import Audio, Message, Output, Request, TextPart
from engine.core import Wave

REQUEST = Request(id="r", session="s", messages=(Message("user", (TextPart("Hello."),)),))


class Listening:
    """A source and a sink in one: it makes the second piece of sound when the first has been heard."""

    name = "the test"
    ledger = None
    marks_ms: dict[str, float] = {}  # noqa: RUF012 - nobody writes to it

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.samples = 0

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Answered]:
        yield self

    def played(self) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[Output]:
        yield Audio(np.zeros(960, np.float32))
        await self.heard.wait()
        yield Audio(np.zeros(960, np.float32))

    async def write(self, samples: Wave) -> None:
        self.samples += len(samples)
        self.heard.set()

    async def close(self) -> None:
        pass


async def test_sound_is_heard_before_the_rest_of_it_is_made() -> None:
    listening: Any = Listening()
    async with asyncio.timeout(30):
        await answer(cast("Answerer", listening), REQUEST, cast("Sink", listening), Show(), ReceivedAnswer())
    assert listening.samples == 2 * 960
