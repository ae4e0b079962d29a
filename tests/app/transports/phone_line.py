"""A transport that the server itself does not have: lines over TCP, as from a telephone exchange. The server plays.

A line is an event as JSON, or ``~`` and the base64 of a piece of sound. The client's first line is ``CALL`` or ``RESUME
TOKEN NUMBER``, its last one ``BYE``; the server's last one is ``BYE CODE``. All the rest every connection has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress

import numpy as np
import pybase64

from app.limits.principal import Principal
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol.client_events import InputSamples, Received
from app.service import Service
from app.transports.channel import Channel
from app.transports.connection import Connection
from app.transports.disconnect import Disconnect
from app.transports.opening import Opening
from app.transports.resumable_session import ResumableSessions

PROFILE = PlayoutProfile(lead_s=0.04, packet_s=0.02, plays=True, streams_input=True)
MOST_WAITING = 64 * 1024
"""Bytes on their way: sound that would come later than so many is left out, as on a bad line."""


class PhoneLine:
    """One connection. Its sound is int16: MIC_RATE_HZ from the client, SPEAKER_RATE_HZ to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: Service) -> None:
        self._reader, self._writer = reader, writer
        self.delay_s, self.lag_s, self.ahead_s, self.last_seen_s = 0.0, 0.06, 0.0, time.monotonic()
        self.channel = Channel(self, service.settings.limits, service.loop_time(Principal()), sound=self)

    async def messages(self) -> AsyncGenerator[str | Received]:
        with suppress(ConnectionError):
            while line := (await self._reader.readline()).strip():
                self.last_seen_s = time.monotonic()
                if line == b"BYE":
                    return
                if line.startswith(b"~"):
                    yield Received(InputSamples(np.frombuffer(pybase64.b64decode(line[1:]), "<i2")))
                else:
                    yield line.decode()
        raise Disconnect

    async def send(self, text: str) -> None:
        try:
            self._writer.write(text.encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            raise Disconnect from None

    def play(self, pcm: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() < MOST_WAITING:
            self._writer.write(b"~" + pybase64.b64encode(pcm) + b"\n")

    def stop(self) -> None:
        """What has left is heard."""

    async def run(self) -> None:
        """A line has no work of its own."""

    async def close(self, disconnect: Disconnect) -> None:
        if disconnect.how == "goodbye":
            with suppress(Disconnect, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.send(f"BYE {disconnect.code}")
                    self._writer.close()
                    return
        self._writer.transport.abort()


async def serve_lines(service: Service, caller: Principal) -> asyncio.Server:
    """Take lines on a port of this machine, all of one caller."""
    sessions = ResumableSessions()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words, line = (await reader.readline()).decode().split(), PhoneLine(reader, writer, service)
        if words[0] == "RESUME":
            resumable, after = sessions.find(words[1], words[2], caller)
            await resumable.come_back(line.channel, after)
        else:
            with service.admission.admit(caller) as context:
                opening = Opening(caller, profile=PROFILE)
                await Connection(service, sessions, context, line.channel, opening).run("phone")

    return await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
