"""The output of a Live session over a socket: one stream of sound in real time, silence where nothing is said.

A client has nothing to clear with, so the stream is never far ahead of the clock: an answer's sound leaves when the
session lets it go, and silence only once its time has passed. So what is said never waits behind a silence.

And the sound of a call, which has it on tracks of its own, for the sockets beside it. Knows no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import orjson
import pybase64

from app.live.timeline import OutputTimeline
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import Format, OutputEncoder, SpeakerFormat
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import Resampler
from engine.core import Pcm

FRAME_S = 0.040
"""Seconds of silence that leave at once."""

OVERLAP_MS = 192

PROFILE = PlayoutProfile(lead_s=0.030, packet_s=0.020, plays=True, overlap_ms=OVERLAP_MS)
"""At most 50 ms leave ahead of the listener, and twice that behind an answer that was interrupted. A user who
speaks over an answer is heard out for a fifth of a second, so that a short "mm-hm" does not stop it."""


SILENCE: Pcm = np.zeros(round(FRAME_S * SPEAKER_RATE_HZ), np.int16)


class LiveSound:
    """``put`` takes an event's text and its seconds; ``format`` is the client's."""

    def __init__(self, timeline: OutputTimeline, format: Format | None, put: Callable[[str, float], None]) -> None:
        self._timeline = timeline
        self._encoder = OutputEncoder(format or SpeakerFormat())
        self._put = put
        self.last_seen_s = 0.0
        self.delay_s = FRAME_S  # a player that starts with the first silence is that far behind the clock

    @property
    def lag_s(self) -> float:
        return self.delay_s

    def play(self, pcm: bytes) -> None:
        self._send(np.frombuffer(pcm, "<i2").astype(np.int16))

    def stop(self) -> None:
        """Let what has left be heard: the client has nothing to clear it with, and at most PROFILE.lead_s is ahead."""

    async def run(self) -> None:
        """Fill the stream with silence, for as long as it is wanted."""
        while True:
            frames = int(-self._timeline.ahead_s / FRAME_S)
            if frames > 0:  # a player that ran dry meanwhile would be late for good, so that one frame has to do
                self._timeline.add(frames * len(SILENCE))
                self._send(SILENCE)
            await asyncio.sleep(FRAME_S + self._timeline.ahead_s)

    def _send(self, pcm: Pcm) -> None:
        if self._timeline.over:
            return
        delta = pybase64.b64encode(self._encoder.push_pcm(pcm)).decode("ascii")
        if delta:
            event = {"type": "session.output_audio.delta", "delta": delta}
            self._put(orjson.dumps(event).decode(), len(pcm) / SPEAKER_RATE_HZ)


class CallSound:
    """The sound of a call as sockets beside it are told of it: mono int16 at SPEAKER_RATE_HZ, both ways. The output has
    its place on the ``timeline``; of its silence nothing is told."""

    def __init__(self, timeline: OutputTimeline) -> None:
        self._timeline = timeline
        self._up: Resampler[np.int16] | None = None  # once somebody listens

    def reflect_input(self, pcm: Pcm) -> str | None:
        """The microphone's next sound, int16 at MIC_RATE_HZ, whether it is muted or not; None behind the end."""
        if self._timeline.over:
            return None
        self._up = self._up or Resampler(MIC_RATE_HZ, SPEAKER_RATE_HZ)
        audio = pybase64.b64encode(self._up.push(pcm).astype("<i2").tobytes()).decode("ascii")
        return orjson.dumps({"type": "session.input_audio.append", "audio": audio}).decode()

    def reflect_output(self, pcm: bytes) -> str | None:
        """The sound, little-endian int16, that the timeline got last; None behind the end."""
        if self._timeline.over:
            return None
        start_ms, end_ms = self._timeline.last_ms(len(pcm) // 2)
        delta = pybase64.b64encode(pcm).decode("ascii")
        return orjson.dumps(
            {"type": "session.output_audio.delta", "delta": delta, "start_ms": start_ms, "end_ms": end_ms}
        ).decode()
