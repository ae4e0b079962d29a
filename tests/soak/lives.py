"""What users do to a server, at random and for as long as it takes: ask, speak, interrupt, hang up in the middle.

The same seed is the same sequence of lives. Each checks that it is served, and hears its answers in real time; a life
that is cut off checks nothing.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import numpy as np
import orjson
import pybase64
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import WebSocketException

from app.client import Client, Response, connect, webrtc
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm
from tests.app.transports.webrtc.relay import Relay, relaying, without_addresses

ANSWER_S = 120.0  # whether an answer comes is asked here, not when: other programs may have the cores
LONG = "long 120"
"""Half a minute of speech of the scripted family; nano says that it does not know."""

OFFERS = "a=setup:actpass"
"""The role over DTLS that an offer leaves open, and an answer takes (RFC 8842, 5.1)."""

QUESTION = "say: good morning to you"
STATES = (
    "session.created",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "response.created",
    "response.output_audio.delta",
    "response.done",
)
"""What a user who hangs up has just been told."""

STATE_S = 4.0
"""Some are never told: a state comes by then, or the user hangs up all the same."""

SLOW_S, SLOW_READS, SLOW_BYTES = 8.0, 10, 4096
"""A slow reader reads so often in so many seconds, from a socket with so small a buffer; then it hangs up."""

TURNS_OF_A_CALL, LOSS, LOSS_S = 8, 0.05, 3.0
"""Within a call so many questions, and once, for so long, so much of what goes either way is lost."""
LOSS_REACH_S = 1.0
"""After a loss the listener's jitter buffer may still wait for what is gone, or for what is sent anew."""


class Diary(Protocol):
    """Where users say what happened to them."""

    def did(self, user: str, way: str) -> None:
        """Something was done to its end."""
        ...

    def heard(self, user: str, way: str, answer: Response) -> None:
        """An answer was heard to its end; it may be cut off."""
        ...

    def lost(self, user: str, until_s: float, note: str) -> None:
        """What was on its way to or from a user was lost."""
        ...


class User:
    """One of several at a time, with a seed and a voice of their own."""

    def __init__(
        self,
        url: str,
        seed: int,
        voices: Sequence[Pcm],
        diary: Diary,
        name: str = "",
        long: str = LONG,
        questions: Sequence[str] = (QUESTION,),
    ) -> None:
        self.url = url
        self.random = random.Random(seed)
        self.diary = diary
        self.name = name
        self.long = long
        self._voices = voices
        self._questions = questions

    async def live(self, until_s: float) -> None:
        """One life after another, until the clock says so."""
        while asyncio.get_running_loop().time() < until_s:
            await self.once(self.draw())

    def draw(self) -> Life:
        return self.random.choices(list(LIVES), list(LIVES.values()))[0]

    async def once(self, life: Life) -> None:
        await life(self)
        self.diary.did(self.name, life.__name__)

    def session(self) -> AbstractAsyncContextManager[Client]:
        return connect(self.url, model="soak")

    @asynccontextmanager
    async def socket(self) -> AsyncGenerator[ClientConnection]:
        """A socket without the client's care, which is reset in the end."""
        address = self.url.replace("http", "ws", 1) + "/v1/realtime?model=soak"
        async with open_socket(address, compression=None, proxy=None, max_size=None) as connection:
            yield connection
            connection.transport.abort()

    def question(self) -> str:
        return self.random.choice(self._questions)

    def words(self) -> Pcm:
        """Something to say, and the silence after it."""
        voice = self._voices[self.random.randrange(len(self._voices))]
        return np.concatenate([voice, np.zeros(SPEAKER_RATE_HZ, np.int16)])

    async def say(self, client: Client) -> None:
        """Say something; the answer to it counts from the last voiced sample."""
        words = self.words()
        await client.speak(words[:-SPEAKER_RATE_HZ])
        client.speech_ended()
        await client.speak(words[-SPEAKER_RATE_HZ:])

    async def hear(self, way: str, answering: Awaitable[Response]) -> None:
        """Wait for an answer, and hear it out in real time."""
        async with asyncio.timeout(ANSWER_S):
            answer = await answering
        await asyncio.sleep(max(0.0, answer.player.ends_s - time.monotonic()))
        self.diary.heard(self.name, way, answer)


Life = Callable[[User], Awaitable[None]]


async def asks(user: User) -> None:
    async with user.session() as client:
        for _ in range(user.random.randint(1, 3)):
            await user.hear("asks", client.ask(user.question()))


async def speaks(user: User) -> None:
    async with user.session() as client:
        await user.say(client)
        await user.hear("speaks", client.answer())


async def interrupts(user: User) -> None:
    """With the client's own word for it."""
    async with user.session() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.ask(user.long))
        await asyncio.sleep(user.random.uniform(0.0, 1.5))
        await client.interrupt()
        asking.cancel()


async def speaks_over(user: User) -> None:
    """By voice: the answer stops, and what the user said is answered."""
    async with user.session() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.ask(user.long))
        await asyncio.sleep(user.random.uniform(0.3, 1.5))
        await user.say(client)
        await user.hear("speaks_over", client.answer())
        asking.cancel()


async def hangs_up(user: User) -> None:
    """In the middle of whatever it is: the connection is reset, in one of all states or some time after it."""
    state, later_s = user.random.choice(STATES), user.random.choice((0.0, user.random.uniform(0.0, 1.5)))
    async with user.socket() as socket, asyncio.TaskGroup() as tasks:
        speaking = tasks.create_task(_speak(socket, user.words()))
        with suppress(TimeoutError):
            async with asyncio.timeout(STATE_S):
                async for message in socket:
                    if orjson.loads(message)["type"] == state:
                        break
        with suppress(TimeoutError):
            async with asyncio.timeout(later_s):
                async for _ in socket:
                    pass
        speaking.cancel()


async def looks_in(user: User) -> None:
    async with user.session():
        await asyncio.sleep(user.random.uniform(0.0, 0.3))


async def reads_slowly(user: User) -> None:
    """One who asks for more than they read, so that what is sent to them waits."""
    async with user.socket() as connection:
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BYTES)
        for _ in range(SLOW_READS):
            with suppress(WebSocketException):  # the server may end it: that is its right
                await connection.send(_typed(user.long))
                await connection.send('{"type": "response.create"}')
                await connection.recv()
            await asyncio.sleep(SLOW_S / SLOW_READS)


async def calls(user: User) -> None:
    """Some questions over WebRTC, through a relay that loses packets for a while."""
    async with (
        relaying() as relay,
        webrtc.opened(user.url, "soak", through=only(relay)) as line,
        Client(line) as client,
    ):
        bad = user.random.randrange(TURNS_OF_A_CALL)
        for turn in range(TURNS_OF_A_CALL):
            if turn == bad:
                user.diary.lost(user.name, time.monotonic() + LOSS_S + LOSS_REACH_S, f"{LOSS:.0%} of a call's packets")
            async with _losing(relay, turn == bad):
                await user.hear("calls", client.ask(user.question() if user.random.random() < 0.5 else user.long))


LIVES: dict[Life, int] = {
    asks: 4, speaks: 5, interrupts: 1, speaks_over: 1, hangs_up: 2, looks_in: 1, reads_slowly: 1,
}  # fmt: skip
"""And how often each is drawn. Callers are users of their own: a call takes the media libraries some processor time."""


def only(relay: Relay) -> Callable[[str], str]:
    """Rewrite what caller and server tell each other of their addresses, so that there is one way, through the relay.

    The server learns none of the caller's: it would go to them by itself, and might be there first.
    """

    def through(sdp: str) -> str:
        if OFFERS in sdp:
            return without_addresses(sdp)
        first, kept = True, list[str]()
        for line in relay.between(sdp).splitlines():
            if line.startswith("a=candidate:"):
                if not first:
                    continue
                first = False
            kept.append(line)
        return "\r\n".join([*kept, ""])

    return through


@asynccontextmanager
async def _losing(relay: Relay, bad: bool) -> AsyncGenerator[None]:
    """Lose packets for a while, if so."""
    if not bad:
        yield
        return
    relay.loss = LOSS
    end = asyncio.get_running_loop().call_later(LOSS_S, setattr, relay, "loss", 0.0)
    try:
        yield
    finally:
        end.cancel()
        relay.loss = 0.0


async def _speak(socket: ClientConnection, pcm: Pcm) -> None:
    """A microphone's pieces in real time, until the socket is gone."""
    piece = SPEAKER_RATE_HZ // 10
    with suppress(WebSocketException):
        for start in range(0, len(pcm), piece):
            audio = pybase64.b64encode(pcm[start : start + piece].astype("<i2").tobytes()).decode()
            await socket.send(orjson.dumps({"type": "input_audio_buffer.append", "audio": audio}).decode())
            await asyncio.sleep(0.1)


def _typed(text: str) -> str:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return orjson.dumps({"type": "conversation.item.create", "item": item}).decode()
