"""Echo cancellation of one session: begins once the microphone's signal contains the playback, and follows its delay.

Sans-I/O: positions are counted in the microphone's samples. What the client reports about its playback is not used: the
delay is measured in the signals, so that wrong or missing reports do no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median

import numpy as np

from app.realtime.input.echo_finder import REACH, WINDOW, Echo, find_echo
from app.realtime.input.echo_gate import EchoGate
from app.realtime.input.linear_echo_filter import LinearEchoFilter
from app.realtime.input.playback_timeline import PlaybackTimeline
from app.realtime.ports import EchoCanceller
from engine.core import MIC_RATE_HZ, Pcm

CHECK = 512
"""Samples between two searches for an echo, as long as the echo or its delay is not known: 32 ms."""

RARELY = MIC_RATE_HZ
"""Samples between two searches later on."""

UNSURE = 5 * MIC_RATE_HZ
"""Samples of playback after which a signal without echo is searched rarely."""

FORGET = 60 * MIC_RATE_HZ
"""Samples of playback without a clear echo after which cancellation ends: the user has put on headphones."""

AUDIBLE_DB = -30.0
"""Level below the playback at which an echo is left alone: the client's own echo cancellation leaves as much."""

EARLY = MIC_RATE_HZ // 50
"""Samples by which the canceller receives the playback before its echo: a room's and a clock's tolerance."""

TOLERANCE = 4
"""Samples by which the delay may change before the playback is aligned again: a filter follows a drifting clock."""

AGREEING = 8
"""Samples by which two searches may differ to confirm a new delay."""

FRESH = MIC_RATE_HZ
"""Samples after the start of playback in which it is searched often: each answer may be later or earlier."""

PRIMED = 2 * MIC_RATE_HZ
"""Samples of the past from which a new canceller learns the room at once."""


class EchoCancellation:
    """The echo cancellation of one microphone. ``new`` makes a canceller with a suppressor; None switches all off.

    ``new_linear`` makes one that does not distort the user's voice. ``always``: begin with the first sample instead of
    the first echo.
    """

    def __init__(
        self,
        new: Callable[[], EchoCanceller] | None,
        always: bool = False,
        new_linear: Callable[[], EchoCanceller] = LinearEchoFilter,
    ) -> None:
        self._new = new
        self._new_linear = new_linear
        self._always = always
        self._cancellers: tuple[EchoCanceller, EchoCanceller] | None = None  # suppressing and linear
        self._gate = EchoGate()
        self._timeline = PlaybackTimeline(REACH + WINDOW + PRIMED)
        self._position = 0
        self._recent: Pcm = np.zeros(0, np.int16)  # the microphone's last PRIMED samples
        self._shift = 0  # samples by which the cancellers receive the playback later than it was played
        self._moved: int | None = None  # another delay, found once: it may be a mistake
        self._found: deque[Echo] = deque(maxlen=9)
        self._searched = 0  # position of the last search
        self._began = 0  # position at which the present playback began
        self._without = 0  # samples of playback without a clear echo

    @property
    def gain_db(self) -> float | None:
        """Return the level of the echo relative to the playback; None while nothing is cancelled."""
        if self._cancellers is None or not self._found:
            return None
        return median(echo.gain_db for echo in self._found)

    @property
    def delay(self) -> int:
        """Return the samples by which the echo is later than the playback; 0 while nothing is cancelled."""
        return 0 if self._cancellers is None else self._shift + EARLY

    def playing(self, pcm: Pcm) -> None:
        """Add int16 [samples] at MIC_RATE_HZ that the listener hears now, or after the samples before."""
        if self._new is not None:
            self._timeline.playing(pcm, self._position)

    def stopped(self) -> None:
        """Note that the rest of the playback will not be heard."""
        self._timeline.stopped(self._position)

    def paused(self) -> None:
        """Note that the rest of the playback will be heard after ``resumed``."""
        self._timeline.paused(self._position)

    def resumed(self) -> None:
        self._timeline.resumed(self._position)

    def process(self, pcm: Pcm) -> tuple[Pcm, Pcm]:
        """Return int16 [samples] of the microphone without echo, for turn detection and for speech recognition.

        Both are the same object as ``pcm`` if nothing is cancelled.
        """
        if self._new is None:
            return pcm, pcm
        start = self._position
        self._position = start + len(pcm)
        self._recent = np.concatenate([self._recent, pcm])[-PRIMED:]
        if self._position - self._searched >= self._interval:
            self._search(self._position - self._searched, start)
        if self._cancellers is None and self._always:
            self._cancellers = self._new(), self._new_linear()
        return self._cancelled(pcm, start)

    def _cancelled(self, pcm: Pcm, start: int) -> tuple[Pcm, Pcm]:
        """Pass the microphone's samples from a position on through the cancellers."""
        if self._cancellers is None:
            return pcm, pcm
        begin = start - self._shift
        if self._timeline.is_silent(begin, begin + len(pcm)):
            self._began = start + len(pcm)
        playback = self._timeline.between(begin, begin + len(pcm))
        suppressing, linear = self._cancellers
        speech = linear.process(pcm, playback)
        return self._gate.choose(speech, suppressing.process(pcm, playback)), speech

    @property
    def _interval(self) -> int:
        if self._cancellers is not None:
            return CHECK if self._position - self._began < FRESH else RARELY
        return RARELY if self._without > UNSURE else CHECK

    def _search(self, samples: int, start: int) -> None:
        """Search the newest window for an echo, ``samples`` after the last search; the newest piece is at ``start``."""
        self._searched = self._position
        if len(self._recent) < WINDOW or self._timeline.is_silent(self._position - WINDOW - REACH, self._position):
            return
        playback = self._timeline.between(self._position - WINDOW - REACH, self._position)
        echo = find_echo(self._recent[-WINDOW:], playback)
        if echo is None or echo.gain_db < AUDIBLE_DB:
            self._without += samples
            if self._without > FORGET and not self._always:
                self._cancellers = None
                self._found.clear()
            return
        self._without = 0
        if self._is_new(echo.delay):
            self._align(echo.delay, start)
        self._found.append(echo)

    def _is_new(self, delay: int) -> bool:
        """Return whether two searches found a delay that differs from the present alignment."""
        is_known = self._cancellers is not None and abs(max(0, delay - EARLY) - self._shift) <= TOLERANCE
        confirmed = self._moved is not None and abs(delay - self._moved) <= AGREEING
        self._moved = None if is_known else delay
        return confirmed and not is_known

    def _align(self, delay: int, start: int) -> None:
        """Align the playback. What cancellers have learned stays valid; new ones learn from the last seconds."""
        self._moved = None
        self._began = self._position
        self._shift = max(0, delay - EARLY)
        if self._cancellers is not None or self._new is None:
            return
        self._found.clear()
        self._cancellers = self._new(), self._new_linear()
        past = self._recent[: len(self._recent) - (self._position - start)]
        self._cancelled(past, start - len(past))
