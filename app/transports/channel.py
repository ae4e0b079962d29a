"""One connection of a client, whatever carries it: events out by one writer, messages in, and a goodbye.

A socket, a call and a telephone bridge differ in their ``Transport``, and in a ``PlayedAudio`` where the server itself
plays. ``connection`` has the life of a session over one channel after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Protocol

from app.limits.fair_scheduler import LoopTimeBudget, metered
from app.realtime.protocol import Received
from app.realtime.protocol.dialect import REALTIME, Dialect
from app.realtime.protocol.server_events import ServerEvent
from app.refusal import Refusal
from app.settings import Limits
from app.transports.disconnect import SLOW, Disconnect, first
from app.transports.outbox import FRAGMENT_CHARS, Outbox
from engine.aio.task_group import CycleFreeTaskGroup


class Transport(Protocol):
    """The carrier of a client's messages and the server's events. A channel drives it."""

    def messages(self) -> AsyncGenerator[str | bytes | Received]:
        """Yield what the client sends, until it says goodbye. Raises Disconnect where the connection is lost
        instead."""
        ...

    async def send(self, text: str) -> None:
        """Send one event; waits while the client takes nothing. Raises Disconnect where the connection is lost."""

    async def run(self) -> None:
        """The transport's own work beside the messages, if it has any. Raises Disconnect to end the connection."""

    async def close(self, disconnect: Disconnect) -> None:
        """Say goodbye, cut off, or let go, as ``disconnect.how`` says. May be called twice."""


class PlayedAudio(Protocol):
    """The sound of a transport on which the server plays answers out, and hears the microphone as a stream."""

    last_seen_s: float
    """The time when something came from the client last, in the session's clock."""
    delay_s: float
    """Seconds that a sample waits at the client before it is heard; the client may set it."""

    @property
    def lag_s(self) -> float:
        """Return how long a sample is on its way from here to the listener's ear."""
        ...

    def play(self, pcm: bytes) -> None:
        """Play little-endian int16 at SPEAKER_RATE_HZ. Never waits."""

    def stop(self) -> None:
        """Throw away what was played and has yet to be heard, as far as it can be reached: the answer was
        interrupted. Never waits."""


class Channel:
    """``loop_time`` is the client's part of the event loop's time. ``opened``: events can go out; None is at once.

    ``dialect`` is the session's: what the client says and gets is in its words.
    """

    def __init__(
        self,
        transport: Transport,
        limits: Limits,
        loop_time: LoopTimeBudget,
        sound: PlayedAudio | None = None,
        opened: asyncio.Event | None = None,
        dialect: Dialect = REALTIME,
    ) -> None:
        self.transport = transport
        self.sound = sound
        self.dialect = dialect
        self.outbox = Outbox(limits.unsent_s)
        self.opened = opened or asyncio.Event()
        if opened is None:
            self.opened.set()
        self.over = asyncio.Event()
        """Set once the client has left, or has come back over another channel."""
        self.said_goodbye = False
        """Whether the client was not cut off: it won't come back."""
        self._timeout_s = limits.send_timeout_s
        self._loop_time = loop_time

    def put(self, event: ServerEvent) -> None:
        """Send an event that is no session's. Never waits."""
        for text in self.dialect.encode(event):
            self.outbox.put(text)

    async def received(self) -> AsyncGenerator[Received]:
        """Yield what the client says, until it disconnects."""
        try:
            async with aclosing(self.transport.messages()) as messages:
                async for message in messages:
                    yield message if isinstance(message, Received) else await self.read(message)
        except Disconnect:
            return
        self.said_goodbye = True

    async def read(self, message: str | bytes) -> Received:
        """The event in a message, read in the client's part of the loop's time, or in a thread where it is large."""
        return await self._loop_time.read(partial(self.decode, message), len(message))

    def decode(self, message: str | bytes) -> Received:
        """The event in a message, on whatever transport messages are texts or bytes."""
        if isinstance(message, str):
            return self.dialect.decode(message)
        return Received(Refusal("invalid_event", "Events are JSON in text messages."))

    async def carry(self) -> Disconnect:
        """Send what the outbox gets until the connection is over; why it is."""
        why = Disconnect()
        try:
            async with CycleFreeTaskGroup() as tasks:
                tasks.create_task(self.write(), name="write")
                tasks.create_task(self.transport.run(), name="transport")
                await self.over.wait()
                raise Disconnect
        except* Disconnect as disconnects:
            why = first(disconnects)
        return why

    async def write(self) -> None:
        """The only one who sends, in the client's part of the loop's time: an answer costs as much as a question.

        A client that takes nothing for too long is left. Raises Disconnect.
        """
        await self.opened.wait()
        while True:
            await self.outbox.changed()
            if self.outbox.overflowed:
                raise Disconnect(SLOW, "the client reads too slowly", "cut")
            await metered(self._send_all(), self._loop_time)

    async def say_goodbye(self, disconnect: Disconnect) -> None:
        """Send what is left, if there is to be a goodbye, and end the connection."""
        if disconnect.how == "goodbye" and self.opened.is_set():
            try:
                await self._send_all()
            except Disconnect as lost:
                disconnect = lost
        await self.transport.close(disconnect)

    async def _send_all(self) -> None:
        """Empty the outbox. Raises Disconnect if the client does not take one message in time: a long one may take as
        long as so many short ones, on a slow line."""
        try:
            while (text := self.outbox.take()) is not None:
                async with asyncio.timeout(self._timeout_s * (1 + len(text) // FRAGMENT_CHARS)):
                    await self.transport.send(text)
        except TimeoutError:
            raise Disconnect(SLOW, "the client does not read", "cut") from None
