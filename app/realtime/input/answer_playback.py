"""What the listener hears of the answers, as positions of the microphone, for the detection of turns."""

from __future__ import annotations

import math

import numpy as np

from app.realtime.input.echo_cancellation import EchoCancellation
from app.realtime.input.open_turn import OpenTurn
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import Resampler
from engine.core import Wave


class AnswerPlayback:
    """The playback of one session's answers. It also keeps ``quiet_from`` of the turn."""

    def __init__(self, turn: OpenTurn, echo: EchoCancellation) -> None:
        self._turn = turn
        self._echo = echo
        self._resampler = Resampler(SPEAKER_RATE_HZ, MIC_RATE_HZ)
        self._plays_to = 0.0  # the position up to which the listener hears a response
        self._paused_at: int | None = None  # the position since which playback is paused

    @property
    def is_heard(self) -> bool:
        """Whether the listener hears a response."""
        return self._paused_at is not None or self._turn.recent.position < self._plays_to + self._echo.delay

    @property
    def position(self) -> int:
        """The microphone's position, or that at which a pause of the playback began."""
        return self._turn.recent.position if self._paused_at is None else self._paused_at

    def playing(self, samples: Wave) -> None:
        """The listener hears float32 [samples] at SPEAKER_RATE_HZ now, or after everything sent before.

        Their echo is not taken for the user.
        """
        self._plays_to = math.inf
        self._echo.playing(self._resampler.push((np.clip(samples, -1, 1) * 32767).astype(np.int16)))

    def stopped(self) -> None:
        """The samples that were not played yet will not be heard."""
        self._plays_to = 0.0
        self._paused_at = None
        self._echo.stopped()

    def paused(self) -> None:
        """The listener hears nothing until ``resumed``, and then the samples that were not played yet."""
        self._paused_at = self._turn.recent.position
        self._echo.paused()

    def resumed(self) -> None:
        """The listener hears the samples that were not played yet from now on."""
        if self._paused_at is None:
            return
        paused = self._turn.recent.position - self._paused_at
        self._paused_at = None
        self._plays_to += paused
        if self._turn.quiet_from is not None:
            self._turn.quiet_from += paused
        self._echo.resumed()

    def ends_at(self, position: int) -> None:
        """The listener will have heard the response at a position; then idle time begins."""
        self._turn.quiet_from = position
        self._plays_to = min(self._plays_to, position)
