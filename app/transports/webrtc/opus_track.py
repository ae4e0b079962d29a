"""The server's voice in a call: samples in, Opus packets out, each when it is there.

The session paces what it pushes, in whole frames until an answer's last, so a packet leaves at once. When the listener
is about to run dry, a few silent packets follow (the player would stretch the last sound, and clients that prefetch
would hold it back); then nothing is sent, and the next packet's timestamp jumps by the time that has passed: a stream
of silence would make a browser's delay grow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av.packet import Packet

from app.transports.webrtc.opus import CLOCK_HZ, FRAME, FRAME_S, FRAME_TICKS, OpusEncoder, whole_frames
from engine.core import Pcm

SILENT_PACKETS = 5
"""Silent packets behind the end of what is said: 100 ms."""

HELD_UP_S = 0.005
"""An alarm that is later than this was held up, and so were those who had more to say. They get as long once more: a
silent packet before theirs would be a gap in the middle of a word."""

MOST_WAITING = 50
"""Packets: pacing keeps 300 ms ahead at most, so a second waits only where nobody sends; its oldest is dropped then."""


class OpusTrack(MediaStreamTrack):
    """A track whose ``recv`` gives encoded packets; the connection's sender only packs them. ``now`` is monotonic."""

    kind = "audio"

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._encoder = OpusEncoder()
        self._frames: deque[Pcm] = deque(maxlen=MOST_WAITING)
        self._silent = 0  # silent packets that may still follow
        self._origin_s: float | None = None  # when the first packet left
        self._ticks = 0  # the next packet's timestamp
        self._news = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None

    def push(self, pcm: bytes) -> None:
        """Say little-endian int16 at SPEAKER_RATE_HZ; a last frame that is not whole ends in silence. Never waits."""
        samples = whole_frames(pcm)
        self._frames.extend(samples[at : at + FRAME] for at in range(0, len(samples), FRAME))
        self._silent = SILENT_PACKETS
        self._news.set()

    async def recv(self) -> Packet[Any]:
        """The next packet, as soon as there is one. Raises MediaStreamError once the track was stopped."""
        while not self._frames:
            await self._wait()
            if self.readyState != "live":
                raise MediaStreamError
        return self._packet(self._frames.popleft())

    async def _wait(self) -> None:
        """Wait for more to say; where none comes in time, say the end."""
        self._news.clear()
        if self._silent:
            self._say_end_in(self._dry_in_s())
        try:
            await self._news.wait()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    def _say_end_in(self, seconds: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._alarmed, self._now() + seconds)

    def _alarmed(self, due_s: float) -> None:
        if self._now() - due_s > HELD_UP_S:
            self._say_end_in(HELD_UP_S)
        else:
            self._say_end()

    def _dry_in_s(self) -> float:
        """Seconds until one packet before the listener has played all that has left."""
        return max(0.0, (self._origin_s or 0.0) + self._ticks / CLOCK_HZ - FRAME_S - self._now())

    def _say_end(self) -> None:
        """Send a silent frame."""
        self._silent -= 1
        self._frames.append(np.zeros(FRAME, np.int16))
        self._news.set()

    def _packet(self, pcm: Pcm) -> Packet[Any]:
        if self._origin_s is None:
            self._origin_s = self._now()
        self._ticks = max(self._ticks, round((self._now() - self._origin_s) * CLOCK_HZ))
        packet: Packet[Any] = Packet(self._encoder.encode(pcm))
        packet.pts = self._ticks
        packet.time_base = Fraction(1, CLOCK_HZ)
        self._ticks += FRAME_TICKS
        return packet

    def stop(self) -> None:
        """The call is over. May be called twice."""
        super().stop()
        self._news.set()
