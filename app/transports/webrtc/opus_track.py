"""The server's voice in a call: samples in, Opus packets out, each as soon as it is available.

The session paces its audio, in complete frames except for an answer's last one, so packets are sent at once. When the
listener is about to run dry, a few silent packets follow, because a player would stretch the last sound, and clients
that prefetch would hold it back. Then nothing is sent, and the next packet's timestamp jumps by the elapsed time: a
continuous stream of silence would increase a browser's delay.
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
"""Silent packets after the end of speech: 100 ms."""

HELD_UP_S = 0.005
"""Seconds by which a timer may be late. Beyond that the event loop was blocked, and so was the source of further audio.

The source then gets this time again: a silent packet before its audio would be a gap within a word.
"""

MOST_WAITING = 50
"""Maximum number of waiting packets. Pacing sends at most 300 ms ahead, so a second waits only if nobody sends; the
oldest is then dropped.
"""


class OpusTrack(MediaStreamTrack):
    """A track whose ``recv`` returns encoded packets, so the connection's sender only packs them. ``now`` is
    monotonic.
    """

    kind = "audio"

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._encoder = OpusEncoder()
        self._frames: deque[Pcm] = deque(maxlen=MOST_WAITING)
        self._silent = 0  # silent packets that may still follow
        self._origin_s: float | None = None  # when the first packet was sent
        self._ticks = 0  # the next packet's timestamp
        self._news = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def ahead_s(self) -> float:
        """Return the seconds of audio that are waiting here, or whose time is still to come."""
        sent_s = 0.0 if self._origin_s is None else self._origin_s + self._ticks / CLOCK_HZ - self._now()
        return max(0.0, sent_s) + len(self._frames) * FRAME_S

    def push(self, pcm: bytes) -> None:
        """Add little-endian int16 at SPEAKER_RATE_HZ; an incomplete last frame is padded with silence. Never waits."""
        samples = whole_frames(pcm)
        self._frames.extend(samples[at : at + FRAME] for at in range(0, len(samples), FRAME))
        self._silent = SILENT_PACKETS
        self._news.set()

    async def recv(self) -> Packet[Any]:
        """Return the next packet as soon as there is one. Raises MediaStreamError once the track is stopped."""
        while not self._frames:
            await self._wait()
            if self.readyState != "live":
                raise MediaStreamError
        return self._packet(self._frames.popleft())

    async def _wait(self) -> None:
        """Wait for more audio; if none arrives in time, send silence."""
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
        """Return the seconds until one packet before the listener has played everything sent."""
        return max(0.0, (self._origin_s or 0.0) + self._ticks / CLOCK_HZ - FRAME_S - self._now())

    def _say_end(self) -> None:
        """Send a silent frame after the end of the audio, so that the player does not stretch the last sound."""
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
        """End the track. May be called twice."""
        super().stop()
        self._news.set()
