"""The link between a session and its client's successive channels: a client that enabled it may resume its session.

An extension of the protocol. Without a connection, the session continues for LINGER_S without sending audio. Its events
are kept in a bounded log, and a client that resumes receives those that it missed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from itertools import count

from app.ids import elsewhere, new_id
from app.limits.principal import Principal
from app.realtime.protocol.client_events import InputSamples, Received
from app.realtime.protocol.server_events import (
    AudioDeltaEvent,
    BackgroundAudioEvent,
    OutputAudioClearedEvent,
    ServerEvent,
    SoundPlayedEvent,
)
from app.transports.channel import Channel
from app.transports.disconnect import GOING_AWAY, Disconnect, first
from app.transports.outbox import Outbox
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.aio.task_group import CycleFreeTaskGroup

LINGER_S = 20.0
"""Seconds that a session waits for its client."""

EVENT_LOG_CHARS = 4 * 1024 * 1024
"""A minute of speech in base64: more than is sent before a lost connection is detected (25 s)."""

OPEN_S = 12.0
"""Seconds until the new channel of a resuming client must be open."""


class NoWayBack(Exception):
    """The session can't be resumed; ``status`` is the HTTP status, ``code`` the API's error code."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class EventLog:
    """The last events of a session by number."""

    def __init__(self, limit_chars: int = EVENT_LOG_CHARS) -> None:
        self._limit = limit_chars
        self._texts: deque[str] = deque()
        self._chars = 0
        self.last = 0
        """The number of the last event."""

    def add(self, text: str) -> None:
        """Store the next event, dropping the oldest ones if necessary."""
        self.last += 1
        self._texts.append(text)
        self._chars += len(text)
        while self._chars > self._limit:
            self._chars -= len(self._texts.popleft())

    def forget(self) -> None:
        """Drop all events."""
        self._texts.clear()
        self._chars = 0

    def after(self, number: int) -> list[str] | None:
        """Return the events after this number; None if some of these events were dropped or never existed."""
        missed = self.last - number
        if not 0 <= missed <= len(self._texts):
            return None
        return list(self._texts)[len(self._texts) - missed :]


class ResumableSession:
    """A session over its client's channels, one after the other if the client enabled resuming."""

    def __init__(self, channel: Channel, maker: Principal) -> None:
        self.maker = maker
        """The caller who owns the session."""
        self.away: Callable[[], None] = lambda: None
        """Called when no client is connected any longer."""
        self.back: Callable[[float | None], None] = lambda last_seen_s: None
        """Called when a client has reconnected."""
        self.on_event: Callable[[ServerEvent], None] = lambda event: None
        """Called with each event after it was queued for sending."""
        self.on_detached: Callable[[], None] = lambda: None
        """Called when the first channel has ended."""
        self.ended = asyncio.Event()
        self.disconnect = Disconnect()
        """The reason for the session's end, once it has ended."""
        self.others: set[Outbox] = set()
        """Outboxes of additional listeners."""
        self.sound = channel.sound
        """The audio of the latest channel, if the server plays."""
        self.dialect = channel.dialect
        """The client's dialect."""
        self._channel: Channel | None = channel
        self._attached = asyncio.Event()
        self._event_log: EventLog | None = None

    @property
    def keeps(self) -> bool:
        """Whether the session waits for a client that has disconnected."""
        return self._event_log is not None

    @property
    def unsent_s(self) -> float:
        """Return the seconds of audio that wait for the connected client."""
        return 0.0 if self._channel is None else self._channel.outbox.seconds

    @property
    def ahead_s(self) -> float:
        """Return the seconds of audio that the listener has still to play, if the server plays."""
        return 0.0 if self.sound is None else self.sound.ahead_s

    def keep(self) -> None:
        """Number and store all events from now on. May be called twice."""
        if self._event_log is None:
            self._event_log = EventLog()

    def emit(self, event: ServerEvent) -> None:
        """Send an event to the connected client. Never waits."""
        sound: bytes | None = None
        if isinstance(event, AudioDeltaEvent) and self.sound is not None:
            self.sound.play(sound := event.pcm)
            event = SoundPlayedEvent(event.ref, len(event.pcm) // 2)
        elif isinstance(event, BackgroundAudioEvent) and self.sound is not None:
            self.sound.play(event.pcm)
        elif isinstance(event, OutputAudioClearedEvent) and self.sound is not None:
            self.sound.stop()
        seconds = event.seconds if isinstance(event, AudioDeltaEvent) else 0.0
        numbers = count(self._event_log.last + 1) if self._event_log is not None else None
        self._put(self.dialect.encode(event, numbers), seconds)
        if sound is not None and self.others:
            self._put_beside(self.dialect.reflect_output(sound), len(sound) / 2 / SPEAKER_RATE_HZ)
        self.on_event(event)

    def _put(self, texts: list[str], seconds: float = 0.0) -> None:
        for text in texts:
            if self._event_log is not None:
                self._event_log.add(text)
            for outbox in self.others:
                outbox.put(text, seconds)
            if self._channel is not None:
                self._channel.put_text(text, seconds)
                self._channel.loop_time.sent(len(text) * len(self.others))

    def _put_beside(self, text: str | None, seconds: float) -> None:
        """Send audio to additional listeners, since the client receives it as media."""
        if text is not None:
            for outbox in self.others:
                outbox.put(text, seconds)

    async def received(self) -> AsyncGenerator[Received]:
        """Yield the client's messages over successive channels until it does not come back."""
        while self._channel is not None:
            channel = self._channel
            async with aclosing(channel.received()) as received:
                async for one in received:
                    if self.others and isinstance(one.event, InputSamples):
                        self._put_beside(self.dialect.reflect_input(one.event.pcm), len(one.event.pcm) / MIC_RATE_HZ)
                    yield one
            self.detach(channel)
            if not self.keeps or (channel.said_goodbye and not self._attached.is_set()):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._attached.wait()

    def missed(self, after: int) -> list[str] | None:
        """Return the events after this number; None if some of these events were dropped."""
        return None if self._event_log is None else self._event_log.after(after)

    async def carry(self, channel: Channel) -> None:
        """Run the session over a channel until the channel ends. Raises Disconnect if this ends the session too."""
        disconnect = await channel.carry()
        if not self.keeps:
            raise disconnect
        if self._channel not in (channel, None):
            disconnect = Disconnect(GOING_AWAY, "the client came back over another connection", "cut")
        self.detach(channel)
        await channel.say_goodbye(disconnect)

    async def come_back(self, channel: Channel, after: int) -> None:
        """Continue over another channel until it ends, first sending the events after number ``after`` again."""
        why = Disconnect()
        try:
            async with CycleFreeTaskGroup() as tasks:
                tasks.create_task(self._end(), name="end")
                tasks.create_task(self._attach(channel, after), name="attach")
                await self.carry(channel)
                raise Disconnect
        except* Disconnect as disconnects:
            why = first(disconnects)
        await channel.say_goodbye(why)

    def detach(self, channel: Channel) -> None:
        """Detach a channel that has ended. May be called twice."""
        channel.over.set()
        if self._channel is channel:
            self.on_detached()
            self._attached.clear()
            if self.keeps:
                self._channel = None
                self.away()

    def end(self, disconnect: Disconnect) -> None:
        """End the session; its channel then closes the connection."""
        self.disconnect = disconnect
        self._put(self.dialect.farewell(disconnect.ended))
        self.ended.set()
        if self._event_log is not None:
            self._event_log.forget()

    async def _end(self) -> None:
        await self.ended.wait()
        raise Disconnect(self.disconnect.code, self.disconnect.reason, self.disconnect.how)

    async def _attach(self, channel: Channel, after: int) -> None:
        """Switch to this channel once it is open, and release the previous one.

        Audio that is sent as media is not in the log. Then the audio since the client was last seen is sent again.
        """
        try:
            async with asyncio.timeout(OPEN_S):
                await channel.opened.wait()
        except TimeoutError:
            raise Disconnect(1006, "the client did not connect") from None
        if (missed := self.missed(after)) is None:
            raise Disconnect(GOING_AWAY, "the client resumed too late", "goodbye")
        if channel.over.is_set() or self.ended.is_set():
            return
        for text in missed:
            channel.put_text(text)
        if self._channel is not None:
            self._channel.over.set()
        last_seen_s = None if self.sound is None else self.sound.last_seen_s
        self._channel = channel
        self.sound = channel.sound
        self._attached.set()
        self.back(last_seen_s)


class ResumableSessions:
    """The resumable sessions of a server by the digest of their tokens; ``server`` is the server's name."""

    def __init__(self, server: str | None = None) -> None:
        self._server = server
        self._kept: dict[bytes, ResumableSession] = {}

    def issue(self, resumable: ResumableSession) -> str:
        """Issue a new token for a session; earlier ones become invalid."""
        self.forget(resumable)
        resumable.keep()
        token = new_id("resume", self._server)
        self._kept[_digest(token)] = resumable
        return token

    def find(self, token: str, after: str, caller: Principal) -> tuple[ResumableSession, int]:
        """Return the session of a token, and the number of the last event that its client received. Raises NoWayBack.

        Only the key that opened the session may resume it. A page may use a newer client secret of that key.
        """
        resumable = self._kept.get(_digest(token))
        if resumable is None or resumable.ended.is_set() or resumable.maker.owner != caller.owner:
            message = f"Unknown or ended session: open a new one.{elsewhere(token, self._server)}"
            raise NoWayBack(404, "resume_not_found", message)
        number = int(after) if after.isascii() and after.isdecimal() and len(after) < 10 else -1
        if resumable.missed(number) is None:
            raise NoWayBack(410, "resume_gap", "Events after number 'after' are no longer stored: open a new session.")
        return resumable, number

    def forget(self, resumable: ResumableSession) -> None:
        """Remove an ended session. May be called twice."""
        self._kept = {digest: one for digest, one in self._kept.items() if one is not resumable}


def _digest(token: str) -> bytes:
    """Return a token's digest. The time of a look-up reveals something about digests, but nothing about tokens."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
