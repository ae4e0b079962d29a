"""What users do to a server, at random and for as long as it takes: ask, speak, interrupt, hang up in the middle.

The same seed is the same sequence of lives. Each checks that it is served; a life that is cut off checks nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

import numpy as np
import orjson
from websockets.asyncio.client import connect as open_socket

from app.client import Client, Response, connect
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

ANSWER_S = 120.0  # whether an answer comes is asked here, not when: other programs may have the cores
LONG = "long 120"
"""Half a minute of speech of the scripted family; nano says that it does not know."""

_MESSAGE = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LONG}]}
A_TURN = tuple(
    orjson.dumps(event).decode()
    for event in (
        {"type": "input_audio_buffer.append", "audio": "A" * 40_000},
        {"type": "conversation.item.create", "item": _MESSAGE},
        {"type": "response.create"},
    )
)
"""As events, for whom the client's care would be in the way."""

Life = Callable[["User"], Awaitable[None]]


class User:
    """One of several at a time, with a seed and a voice of his own."""

    def __init__(self, url: str, seed: int, voices: list[Pcm], done: Counter[str]) -> None:
        self.url, self.random, self.done = url, random.Random(seed), done
        self._voices = voices

    async def live(self, until_s: float) -> None:
        """One life after another, until the clock says so."""
        while asyncio.get_running_loop().time() < until_s:
            life = self.random.choice(LIVES)
            await life(self)
            self.done[life.__name__] += 1

    def session(self) -> AbstractAsyncContextManager[Client]:
        return connect(self.url, model="soak")

    def words(self) -> Pcm:
        """Something to say, and the silence after it."""
        voice = self._voices[self.random.randrange(len(self._voices))]
        return np.concatenate([voice, np.zeros(SPEAKER_RATE_HZ, np.int16)])


async def asks(user: User) -> None:
    async with user.session() as client:
        for _ in range(user.random.randint(1, 3)):
            async with asyncio.timeout(ANSWER_S):
                _whole(await client.ask("say: good morning to you"))


async def speaks(user: User) -> None:
    async with user.session() as client:
        await client.speak(user.words())
        async with asyncio.timeout(ANSWER_S):
            _whole(await client.answer())


async def interrupts(user: User) -> None:
    """With the client's own word for it."""
    async with user.session() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.ask(LONG))
        await asyncio.sleep(user.random.uniform(0.0, 1.5))
        await client.interrupt()
        asking.cancel()


async def speaks_over(user: User) -> None:
    """By voice: the answer stops, and what he said is answered."""
    async with user.session() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.ask(LONG))
        await asyncio.sleep(user.random.uniform(0.3, 1.5))
        await client.speak(user.words())
        async with asyncio.timeout(ANSWER_S):
            _whole(await client.answer())
        asking.cancel()


async def hangs_up(user: User) -> None:
    """In the middle of whatever it is: the connection is reset."""
    address = user.url.replace("http", "ws", 1) + "/v1/realtime?model=soak"
    async with open_socket(address, compression=None, proxy=None, max_size=None) as socket:
        for event in A_TURN[: user.random.randint(0, len(A_TURN))]:
            await socket.send(event)
        with suppress(TimeoutError):
            async with asyncio.timeout(user.random.uniform(0.0, 1.5)):
                async for _ in socket:
                    pass
        socket.transport.abort()


async def looks_in(user: User) -> None:
    async with user.session():
        await asyncio.sleep(user.random.uniform(0.0, 0.3))


LIVES: tuple[Life, ...] = (asks, speaks, interrupts, speaks_over, hangs_up, looks_in)


def _whole(answer: Response) -> None:
    assert answer.complete, answer.response
