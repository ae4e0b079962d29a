"""One connection of a client on any transport: events out through one writer, messages in, and a clean close.

Transports differ in their ``Transport`` and, if the server plays the audio, their ``PlayedAudio``. ``connection`` runs
a session over one channel after another.
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
    """Carries messages between client and server. A channel drives it."""

    def messages(self) -> AsyncGenerator[str | bytes | Received]:
        """Yield the client's messages until it closes the connection. Raises Disconnect if the connection is lost."""
        ...

    async def send(self, text: str) -> None:
        """Send one event; waits while the client reads nothing. Raises Disconnect if the connection is lost."""

    async def run(self) -> None:
        """Do the transport's other work in parallel, if any. Raises Disconnect to end the connection."""

    async def close(self, disconnect: Disconnect) -> None:
        """Close, abort or release the connection, according to ``disconnect.how``. May be called twice."""


class PlayedAudio(Protocol):
    """The audio of a transport on which the server plays answers and receives the microphone as a stream."""

    last_seen_s: float
    """Time of the last input from the client, in the session's clock."""
    delay_s: float
    """Seconds between arrival and playback of a sample at the client, which may set it."""

    @property
    def lag_s(self) -> float:
        """Return the seconds between sending a sample and the listener hearing it."""
        ...

    @property
    def ahead_s(self) -> float:
        """Return the seconds of audio that the listener has still to play, including silence that was put between."""
        ...

    def play(self, pcm: bytes) -> None:
        """Play little-endian int16 at SPEAKER_RATE_HZ. Never waits."""

    def stop(self) -> None:
        """Discard the audio that was not heard yet, as far as possible, after an interruption. Never waits."""


class EventPermissions(Protocol):
    """Decides which events a connection may carry."""

    def refused(self, text: str) -> Received | None:
        """Return the refusal of a client's message; None if it may pass."""
        ...

    def passes(self, text: str) -> bool:
        """Return whether the client may receive an event."""
        ...


class Channel:
    """One connection. ``loop_time`` is the client's share of the event loop's time.

    ``opened`` is set once events can be sent; None means immediately. ``dialect`` is the session's.
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
        """Set once the client has left, or has reconnected over another channel."""
        self.permissions: EventPermissions | None = None
        """Which events it may carry; None: all."""
        self.said_goodbye = False
        """Whether the client closed the connection itself and so won't resume."""
        self._timeout_s = limits.send_timeout_s
        self.loop_time = loop_time

    def put(self, event: ServerEvent) -> None:
        """Send an event of the transport itself, outside the session. Never waits."""
        for text in self.dialect.encode(event):
            self.put_text(text)

    def put_text(self, text: str, seconds: float = 0.0) -> None:
        """Send an encoded event with ``seconds`` of audio, and charge it to the client. Never waits."""
        if self.permissions is not None and not self.permissions.passes(text):
            return
        self.loop_time.sent(len(text))
        self.outbox.put(text, seconds)

    async def received(self) -> AsyncGenerator[Received]:
        """Yield the client's messages until it disconnects."""
        try:
            async with aclosing(self.transport.messages()) as messages:
                async for message in messages:
                    yield message if isinstance(message, Received) else await self.read(message)
        except Disconnect:
            return
        self.said_goodbye = True

    async def read(self, message: str | bytes) -> Received:
        """Decode a message within the client's share of the loop's time, or in a thread if it is long."""
        return await self.loop_time.read(partial(self.decode, message), len(message))

    def decode(self, message: str | bytes) -> Received:
        """Decode a text message; binary messages are refused."""
        if isinstance(message, str):
            refused = None if self.permissions is None else self.permissions.refused(message)
            return refused or self.dialect.decode(message)
        return Received(Refusal("invalid_event", "Send events as JSON in text messages."))

    async def carry(self) -> Disconnect:
        """Send the outbox until the connection ends. Returns the reason."""
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
        """Send messages as the only writer, within the client's share of the loop's time.

        A client that reads nothing for too long is disconnected. Raises Disconnect.
        """
        await self.opened.wait()
        while True:
            await self.outbox.changed()
            if self.outbox.overflowed:
                raise Disconnect(SLOW, "the client reads too slowly", "cut")
            await metered(self._send_all(), self.loop_time)

    async def say_goodbye(self, disconnect: Disconnect) -> None:
        """Send the remaining messages if the close is clean, and end the connection."""
        if disconnect.how == "goodbye" and self.opened.is_set():
            try:
                await self._send_all()
            except Disconnect as lost:
                disconnect = lost
        await self.transport.close(disconnect)

    async def _send_all(self) -> None:
        """Empty the outbox. Raises Disconnect if the client does not read a message in time.

        A long message may take as long as several short ones.
        """
        try:
            while (text := self.outbox.take()) is not None:
                async with asyncio.timeout(self._timeout_s * (1 + len(text) // FRAGMENT_CHARS)):
                    await self.transport.send(text)
        except TimeoutError:
            raise Disconnect(SLOW, "the client does not read", "cut") from None
