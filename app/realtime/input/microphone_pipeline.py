"""A microphone's audio on its way in: decoded, muted, cleaned of echo and noise, and cut into detector steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import numpy as np

from app.realtime.input.decoding import decoded
from app.realtime.input.echo_cancellation import EchoCancellation
from app.realtime.input.frames import FRAME
from app.realtime.input.noise_reduction import Cleaner, cleaner
from app.realtime.protocol import MicrophoneDecoder, SessionOptions, rate_of, sample_count
from app.realtime.session_context import SessionContext
from engine import MIC_RATE_HZ
from engine.core import Pcm

STEP = 512
"""Samples of one step: a chunk of the voice activity detector, 32 ms."""

PIECE = 16 * FRAME
"""Samples that echo cancellation and noise reduction take at once: five steps, a millisecond of work."""


class MicrophonePipeline:
    """The pipeline of one microphone."""

    def __init__(self, context: SessionContext, options: SessionOptions) -> None:
        self.muted = False
        """Whether the microphone counts as silent."""
        self._context = context
        self._input = options.audio.input
        self._decoder = MicrophoneDecoder(self._input.format)
        self._noise = self._cleaner()
        self.echo = EchoCancellation(context.echo_canceller, context.turns.echo_cancellation == "always")
        """Removes the echo of the playback, which the session reports to it."""

    def configure(self, options: SessionOptions) -> None:
        """Take new settings: the next samples come in their format."""
        before = self._input
        self._input = options.audio.input
        if self._input.format != before.format:
            self._decoder = MicrophoneDecoder(self._input.format)
        if self._input.noise_reduction != before.noise_reduction:
            self._noise = self._cleaner()

    def count(self, data: bytes) -> int:
        """Return how many samples at MIC_RATE_HZ the bytes decode to. Raises MediaError."""
        return sample_count(data, self._input.format) * MIC_RATE_HZ // rate_of(self._input.format)

    def decoded(self, data: bytes) -> AsyncIterator[Pcm]:
        """Yield int16 [samples] at MIC_RATE_HZ, in pieces. Raises MediaError."""
        return decoded(self._decoder, data, self._context)

    def steps(self, pcm: Pcm) -> Iterator[tuple[Pcm, Pcm]]:
        """Yield int16 [STEP] pieces of ``pcm`` without echo, each with the same audio after noise reduction."""
        pcm = np.zeros_like(pcm) if self.muted else pcm
        for start in range(0, len(pcm), PIECE):
            sound, speech = self.echo.process(pcm[start : start + PIECE])
            clean = self._noise.clean(speech)
            for at in range(0, len(sound), STEP):
                yield sound[at : at + STEP], clean[at : at + STEP]

    def _cleaner(self) -> Cleaner:
        """Models whose ears reduce noise themselves get the audio unchanged."""
        wanted = self._input.noise_reduction
        if wanted is None or self._context.engine.model.reduces_noise:
            return cleaner(None)
        return cleaner(wanted.type, wanted.strength)
