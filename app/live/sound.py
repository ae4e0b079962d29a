"""Audio output of a Live session over a WebSocket: one real-time stream, with silence between answers.

A client can't discard audio that it has received, so the stream is never far ahead of the clock. An answer's audio is
sent when the session releases it, and silence only after its time has passed, so speech never waits for silence.

``CallSound`` reports the audio of a WebRTC call, which uses media tracks, to WebSockets that listen to it.
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
"""Seconds of silence that are sent at once."""

PROFILE = PlayoutProfile(lead_s=0.030, packet_s=0.020, plays=True)
"""At most 50 ms are sent ahead of the listener, and twice that after an interrupted answer."""

SILENCE: Pcm = np.zeros(round(FRAME_S * SPEAKER_RATE_HZ), np.int16)


class LiveSound:
    """``put`` receives an event's text and its duration in seconds; ``format`` is the client's audio format."""

    def __init__(self, timeline: OutputTimeline, format: Format | None, put: Callable[[str, float], None]) -> None:
        self._timeline = timeline
        self._encoder = OutputEncoder(format or SpeakerFormat())
        self._put = put
        self.last_seen_s = 0.0
        self.delay_s = FRAME_S  # a player that starts with the first silence is this far behind the clock

    @property
    def lag_s(self) -> float:
        return self.delay_s

    @property
    def ahead_s(self) -> float:
        return max(0.0, self._timeline.ahead_s)

    def play(self, pcm: bytes) -> None:
        self._send(np.frombuffer(pcm, "<i2").astype(np.int16))

    def stop(self) -> None:
        """Do nothing: the client can't discard audio, and at most PROFILE.lead_s is ahead of it."""

    async def run(self) -> None:
        """Fill the stream with silence until cancelled."""
        while True:
            frames = int(-self._timeline.ahead_s / FRAME_S)
            if frames > 0:  # one frame may be too few: a player that ran dry would stay late
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
    """Reports a call's audio in both directions to listening WebSockets: mono int16 at SPEAKER_RATE_HZ.

    Output has its position on the ``timeline``; its silence is not reported.
    """

    def __init__(self, timeline: OutputTimeline) -> None:
        self._timeline = timeline
        self._up: Resampler[np.int16] | None = None  # created for the first listener

    def reflect_input(self, pcm: Pcm) -> str | None:
        """Return an event with the microphone's next audio (int16 at MIC_RATE_HZ), muted or not; None after the end."""
        if self._timeline.over:
            return None
        self._up = self._up or Resampler(MIC_RATE_HZ, SPEAKER_RATE_HZ)
        audio = pybase64.b64encode(self._up.push(pcm).astype("<i2").tobytes()).decode("ascii")
        return orjson.dumps({"type": "session.input_audio.append", "audio": audio}).decode()

    def reflect_output(self, pcm: bytes) -> str | None:
        """Return an event with the audio (little-endian int16) last added to the timeline; None after the end."""
        if self._timeline.over:
            return None
        start_ms, end_ms = self._timeline.last_ms(len(pcm) // 2)
        delta = pybase64.b64encode(pcm).decode("ascii")
        return orjson.dumps(
            {"type": "session.output_audio.delta", "delta": delta, "start_ms": start_ms, "end_ms": end_ms}
        ).decode()
