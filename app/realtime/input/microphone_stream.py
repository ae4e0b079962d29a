"""The microphone of a duplex session: one stream that lasts as long as the session, without turns.

The model hears the microphone as it is: no echo and no noise is removed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from app.realtime.input.decoding import decoded
from app.realtime.protocol import MicrophoneDecoder, SessionOptions
from app.realtime.session_context import SessionContext
from engine import MIC_RATE_HZ, Speech
from engine.audio.resampler import Resampler
from engine.core import Pcm

MOST_WAITING_S = 2.0
"""Seconds of audio that may wait here for the engine: more would only be heard later."""

PIECE_S = 0.08
"""Seconds of audio that the engine takes at once, at most."""


class MicrophoneStream:
    """Passes a microphone's audio to the engine as it arrives, at ``rate_hz``. Adding to it never waits for the engine.

    If audio arrives faster than in real time for long, the oldest is dropped. ``dropped`` receives its seconds. A muted
    microphone passes nothing: the engine puts silence in its place.
    """

    def __init__(
        self, context: SessionContext, options: SessionOptions, rate_hz: int, dropped: Callable[[float], None]
    ) -> None:
        self.muted = False
        self._context = context
        self._rate_hz = rate_hz
        self._dropped = dropped
        self._format = options.audio.input.format
        self._decoder = MicrophoneDecoder(self._format, rate_hz)
        self._media = Resampler(MIC_RATE_HZ, rate_hz)
        self._waiting: deque[Pcm] = deque()
        self._samples = 0
        self._news = asyncio.Event()

    def configure(self, options: SessionOptions) -> None:
        """Take new settings: the next bytes come in their format."""
        if options.audio.input.format != self._format:
            self._format = options.audio.input.format
            self._decoder = MicrophoneDecoder(self._format, self._rate_hz)

    async def append(self, data: bytes) -> None:
        """Add bytes in the session's format. Raises MediaError."""
        async for pcm in decoded(self._decoder, data, self._context):
            self._put(pcm)

    def add_samples(self, pcm: Pcm) -> None:
        """Add int16 [samples] at MIC_RATE_HZ from a media stream."""
        self._put(self._media.push(pcm))

    def clear(self) -> None:
        """Drop the audio that the engine has not read."""
        self._waiting.clear()
        self._samples = 0

    async def follow(self) -> AsyncGenerator[Speech]:
        """Yield the audio from now on, without end."""
        while True:
            while self._waiting:
                yield Speech(self._take())
            self._news.clear()
            await self._news.wait()

    def _put(self, pcm: Pcm) -> None:
        if self.muted:
            return
        piece = round(PIECE_S * self._rate_hz)
        self._waiting.extend(pcm[at : at + piece] for at in range(0, len(pcm), piece))
        self._samples += len(pcm)
        while self._samples > MOST_WAITING_S * self._rate_hz:
            self._dropped(len(self._take()) / self._rate_hz)
        self._news.set()

    def _take(self) -> Pcm:
        pcm = self._waiting.popleft()
        self._samples -= len(pcm)
        return pcm
