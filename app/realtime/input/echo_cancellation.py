"""Echo cancellation of one session: begins once the microphone's signal contains the playback, and follows its delay.

Sans-I/O: positions are counted in the microphone's samples. What the client reports about its playback is not used: the
delay is measured in the signals, so that wrong or missing reports do no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from statistics import median

import numpy as np

from app.realtime.input.echo_delay import EchoDelay
from app.realtime.input.echo_finder import REACH, WINDOW, Echo, find_echo
from app.realtime.input.echo_gate import EchoGate
from app.realtime.input.frames import FRAME
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

PEAK_DB = 15.0
"""Level by which the guard's limit rises while an echo is not cancelled yet, so that it is above the echo's peaks."""

MEASURED = 9
"""Found echoes that tell its level. A browser leaves some echo at first, until its own cancellation has learned it."""

LOST = 2 * MIC_RATE_HZ
"""Samples of playback without a clear echo after which its level is not known."""

AUDIBLE_DB = -30.0
"""Level below the playback at which an echo is left alone: the client's own echo cancellation leaves as much."""

EARLY = MIC_RATE_HZ // 50
"""Samples by which the canceller receives the playback before its echo: a room's and a clock's tolerance."""

PAUSE = MIC_RATE_HZ // 2
"""Samples without playback after which its delay may have changed: each answer may be later or earlier."""

FRESH = MIC_RATE_HZ
"""Samples after the start of playback in which it is searched often."""

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
        self._trained: tuple[EchoCanceller, EchoGate] | None = None  # filter and gate when the present playback began
        self.playback = PlaybackTimeline(REACH + WINDOW + PRIMED)
        """What the listener hears, by ``position``."""
        self.position = 0
        """Samples of the microphone so far."""
        self._recent: Pcm = np.zeros(0, np.int16)  # the microphone's last PRIMED samples
        self._delay = EchoDelay()
        self._found: deque[Echo] = deque(maxlen=MEASURED)
        self._searched = 0  # position of the last search
        self._began = 0  # position at which the present playback began
        self._sounded = 0  # position up to which it has sounded
        self._is_aligned = False  # whether its delay has been confirmed
        self._without = 0  # samples of playback without a clear echo

    @property
    def gain_db(self) -> float | None:
        """Return the level of the loudest echo relative to the playback; None while nothing is cancelled."""
        if self._cancellers is None or not self._found:
            return None
        gain_db = median(echo.gain_db for echo in self._found)
        if len(self._found) < MEASURED or self._without > LOST:
            return max(0.0, gain_db)
        is_cancelled = self._is_aligned or self.position - self._began > FRESH
        return gain_db if is_cancelled else gain_db + PEAK_DB

    @property
    def delay(self) -> int:
        """Return the samples by which the echo is later than the playback; 0 while nothing is cancelled."""
        return 0 if self._cancellers is None else round(self._delay.at(self.position))

    def playing(self, pcm: Pcm) -> None:
        """Add int16 [samples] at MIC_RATE_HZ that the listener hears now, or after the samples before."""
        self.playback.playing(pcm, self.position)

    def stopped(self) -> None:
        """Note that the rest of the playback will not be heard."""
        self.playback.stopped(self.position)

    def paused(self) -> None:
        """Note that the rest of the playback will be heard after ``resumed``."""
        self.playback.paused(self.position)

    def resumed(self) -> None:
        self.playback.resumed(self.position)

    def process(self, pcm: Pcm) -> tuple[Pcm, Pcm]:
        """Return int16 [samples] of the microphone without echo, for turn detection and for speech recognition.

        Both are the same object as ``pcm`` if nothing is cancelled.
        """
        start = self.position
        self.position = start + len(pcm)
        if self._new is None:
            return pcm, pcm
        self._recent = np.concatenate([self._recent, pcm])[-PRIMED:]
        if self.position - self._searched >= self._interval:
            self._search(self.position - self._searched, start)
        if self._cancellers is None and self._always:
            self._cancellers = self._new(), self._new_linear()
        return self._cancelled(pcm, start)

    def _cancelled(self, pcm: Pcm, start: int) -> tuple[Pcm, Pcm]:
        """Pass the microphone's samples from a position on through the cancellers."""
        if self._cancellers is None:
            return pcm, pcm
        playback = self._far_end(start, len(pcm))
        if playback.any():
            if start - self._sounded > PAUSE:
                self._begin(start)
            self._sounded = start + len(pcm)
        suppressing, linear = self._cancellers
        speech = linear.process(pcm, playback)
        return self._gate.choose(pcm, speech, suppressing.process(pcm, playback), self._is_aligned), speech

    def _far_end(self, start: int, samples: int) -> Pcm:
        """Return int16 [samples]: the playback whose echo arrives EARLY after a position of the microphone."""
        frames = range(start, start + samples, FRAME)
        shifts = [max(0.0, self._delay.at(at) - EARLY) for at in frames]
        parts = [
            self.playback.interpolated(at - shift, min(FRAME, start + samples - at))
            for at, shift in zip(frames, shifts, strict=True)
        ]
        return np.concatenate([*parts, np.zeros(0, np.int16)])

    @property
    def _interval(self) -> int:
        if self._cancellers is not None:
            return CHECK if self.position - self._began < FRESH else RARELY
        return RARELY if self._without > UNSURE else CHECK

    def _search(self, samples: int, start: int) -> None:
        """Search the newest window for an echo, ``samples`` after the last search; the newest piece is at ``start``."""
        self._searched = self.position
        if len(self._recent) < WINDOW or self.playback.is_silent(self.position - WINDOW - REACH, self.position):
            return
        playback = self.playback.between(self.position - WINDOW - REACH, self.position)
        echo = find_echo(self._recent[-WINDOW:], playback)
        if echo is None or echo.gain_db < AUDIBLE_DB:
            self._without += samples
            if self._without > FORGET and not self._always:
                self._cancellers = None
                self._trained = None
                self._delay = EchoDelay()
                self._found.clear()
            return
        self._without = 0
        if self._delay.add(echo.delay, self.position):
            self._align(start)
        self._is_aligned = self._delay.is_certain
        self._found.append(echo)

    def _begin(self, start: int) -> None:
        """Playback begins after a pause: its delay may differ from the one before."""
        self._began = start
        self._is_aligned = False
        if self._cancellers is not None:
            self._trained = deepcopy((self._cancellers[1], self._gate))

    def _align(self, start: int) -> None:
        """Follow a new delay. The filter forgets what it learned with the wrong one.

        New cancellers learn from the last seconds. The suppressing one finds a new delay itself.
        """
        if self._new is None:
            return
        past = self._recent[: len(self._recent) - (self.position - start)]
        if self._cancellers is None:
            self._found.clear()
            self._gate = EchoGate()
            self._cancellers = self._new(), self._new_linear()
            self._cancelled(past, start - len(past))
            self._trained = deepcopy((self._cancellers[1], self._gate))
        elif self._trained is not None:
            linear, self._gate = deepcopy(self._trained)
            past = past[-(min(len(past), WINDOW) // FRAME * FRAME) :]
            linear.process(past, self._far_end(start - len(past), len(past)))
            self._cancellers = self._cancellers[0], linear
        self._began = self.position
