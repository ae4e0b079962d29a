"""A telephone as a session's transport: the caller's audio and keys in, the answer's audio out.

The exchange receives no events; additional listeners do (``sideband``), and the call's own functions follow them. Knows
no exchange.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing

import numpy as np

from app.ids import new_id
from app.limits.fair_scheduler import metered
from app.realtime.protocol import ServerEvent
from app.realtime.protocol.client_events import CreateItem, CreateResponse, InputSamples, KeyPressed, Received
from app.realtime.protocol.dialect import REALTIME, Dialect
from app.realtime.protocol.items import CallOutputItem
from app.service import Service
from app.telemetry import log
from app.transports.channel import Channel
from app.transports.disconnect import SLOW, Disconnect
from app.transports.inbox import Inbox
from app.transports.silence import SilenceFiller
from app.transports.telephone.call_control import CallControl
from app.transports.telephone.media_stream import KEYS, RATE_HZ, MediaStream
from app.transports.webrtc.opus import whole_frames
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import Resampler
from engine.core import Pcm

HANDSET_S = 0.060
"""Seconds between the exchange and the ear: a telephone's buffer."""

MOST_WAITING = 50
"""Maximum number of waiting packets. Pacing sends a few tenths of a second ahead, so a second waits only if the
exchange reads nothing; the oldest is then dropped.
"""

SILENT_S = 300.0
"""Seconds without input from the exchange after which a call is over.

A stream that knows of holds reports a held call regularly; other exchanges may send nothing then, but also give up
after such a time.
"""

AHEAD_S = 10.0
"""Seconds of audio that may arrive too early, after waiting in a stalled network."""


class Phone:
    """One telephone. ``inbox`` receives the caller's input and the events of additional listeners."""

    def __init__(
        self,
        stream: MediaStream,
        service: Service,
        control: CallControl,
        dialect: Dialect = REALTIME,
    ) -> None:
        limits = service.settings.limits
        self._stream = stream
        self.control = control
        self._send_timeout_s = limits.send_timeout_s
        self._loop_time = stream.loop_time
        self.inbox = Inbox(stream.loop_time.pace or service.pace())
        self.channel = Channel(self, limits, stream.loop_time, sound=self, dialect=dialect)
        self.delay_s = HANDSET_S
        self.last_seen_s = time.monotonic()
        self._up = Resampler(RATE_HZ, MIC_RATE_HZ)
        self._down = Resampler(SPEAKER_RATE_HZ, RATE_HZ)
        self._waiting = deque[Pcm | None](maxlen=MOST_WAITING)  # None: discard what was sent before
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def lag_s(self) -> float:
        """Return the seconds between sending a sample and the listener hearing it."""
        return self._stream.way_s + self.delay_s

    @property
    def ahead_s(self) -> float:
        return sum(len(pcm) for pcm in self._waiting if pcm is not None) / RATE_HZ

    def play(self, pcm: bytes) -> None:
        """Play little-endian int16 at SPEAKER_RATE_HZ; an answer's last packet is padded with silence. Never waits."""
        self._waiting.append(self._down.push(whole_frames(pcm)))
        self._news.set()

    def stop(self) -> None:
        """Discard unplayed audio, if the exchange can. Never waits."""
        self._waiting.clear()
        self._waiting.append(None)
        self._news.set()

    async def messages(self) -> AsyncGenerator[Received]:
        async with aclosing(self.inbox.received(self._gone)) as received:
            async for one in received:
                yield one
        raise Disconnect

    async def send(self, text: str) -> None:
        """Do nothing: the exchange receives no events."""

    def follow(self, event: ServerEvent) -> None:
        """Follow the session's events: one of them may end the call. Never waits."""
        match self.control.follow(event):
            case "over":
                self._over.set()
            case "mistaken":
                output = "There is no such destination."
                item = CallOutputItem(id=new_id("item"), call_id=self.control.mistaken_call, output=output)
                self.inbox.put(Received(CreateItem(item)), 0)
            case "answer":  # nobody else requests it
                self.inbox.put(Received(CreateResponse()), 0)
            case "last answer":  # a model that always calls tools would do so until the caller hangs up
                self.inbox.put(Received(CreateResponse({"tool_choice": "none"})), 0)
            case "goes on":
                pass

    async def run(self) -> None:
        """Carry audio both ways until the caller or the model ends the call. Raises Disconnect, in groups."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="phone-listen")
            tasks.create_task(self._speak(), name="phone-speak")
            tasks.create_task(self._watch_inbox(), name="phone-inbox")
            tasks.create_task(self._watch_silence(), name="phone-silence")
            await self._over.wait()
            raise Disconnect(1000, "the model ended the call", "goodbye")

    async def close(self, disconnect: Disconnect) -> None:
        self._gone.set()
        self.inbox.wake()
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._stream.close(disconnect)
        except TimeoutError:
            log("call.close_late", after_s=self._send_timeout_s)

    async def _listen(self) -> None:
        """Receive the caller's input within the call's share of the event loop's time. Raises Disconnect."""
        await metered(self._receive(), self._loop_time)

    async def _receive(self) -> None:
        began_s, received_s = time.monotonic(), 0.0
        silence = SilenceFiller(self._hear_silence)
        async with aclosing(self._stream.received()) as received:
            with closing(silence):
                async for one in received:
                    await self._loop_time.pause()
                    self.last_seen_s = time.monotonic()
                    if isinstance(one, str):
                        if len(one) == 1 and one in KEYS:
                            self.inbox.put(Received(KeyPressed(one)), len(one))
                        continue
                    received_s += len(one) / RATE_HZ
                    made_up_s = self._stream.made_up_s
                    if received_s - (made_up_s or 0.0) > self.last_seen_s - began_s + AHEAD_S:
                        raise Disconnect(SLOW, "the exchange sends audio faster than real time", "cut")
                    if len(one):
                        self._hear(one)
                        if made_up_s is None:
                            silence.heard()
        raise Disconnect(1000, "the caller hung up")

    def _hear(self, pcm: Pcm) -> None:
        samples = self._up.push(pcm)
        self.inbox.put(Received(InputSamples(samples)), samples.nbytes)

    def _hear_silence(self, seconds: float) -> None:
        self._hear(np.zeros(round(seconds * RATE_HZ), np.int16))

    async def _speak(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                try:
                    async with asyncio.timeout(self._send_timeout_s):
                        await self._say_next()
                except TimeoutError:
                    raise Disconnect(SLOW, "the exchange reads no audio", "cut") from None

    async def _say_next(self) -> None:
        pcm = self._waiting.popleft()
        await (self._stream.stop() if pcm is None else self._stream.send(pcm))

    async def _watch_silence(self) -> None:
        """End a call without input: silence is sent as audio, so no input means that the telephone has vanished."""
        while (left_s := self.last_seen_s + SILENT_S - time.monotonic()) > 0:  # noqa: ASYNC110 - it looks seldom
            await asyncio.sleep(left_s)
        raise Disconnect(1001, f"no input from the exchange for {SILENT_S:g} s", "goodbye")

    async def _watch_inbox(self) -> None:
        await self.inbox.overflowed.wait()
        raise Disconnect(SLOW, "the telephone sends more than can be processed", "cut")
