"""The clock of one duplex session: when its next frame steps, and with which samples. Pure: time is an argument.

A duplex stage takes a frame of the user's sound and gives a frame of its own in the same step. The clock follows the
user's sound: a frame that comes a little late moves the clock. A missing frame is replaced by silence, and a frame for
which the device has no time is skipped, so that the delay between the user and the model stays short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.core import Duplex, DuplexCounts, Pcm, Wave

GRACE_S = 0.04  # seconds that a frame may come late before silence takes its place
PHASES = 4  # due times are multiples of frame_s / PHASES, so that the frames of several sessions step together
CUSHION = 3  # frames of late sound that are kept: after a pause of the network they protect against the next one
ON_TIME = 12  # consecutive frames on time (1 s) after which further sound is no longer late
STOPPED = 25  # consecutive missing frames (2 s) after which further sound is not late either: the user had stopped
REVIEW = 25  # frames (2 s) between two decisions to shorten the delay
FULL_S = 2.0  # seconds of waiting sound from which the adapter reads no more


@dataclass(frozen=True, slots=True)
class DuplexFrame:
    """One frame of the user's sound."""

    number: int
    """Its number on the session's clock, from 0."""
    due_s: float
    """When it was due, in monotonic seconds."""
    wave: Wave
    """float32 [frame_samples] in [-1, 1] at ``Duplex.rate_hz``."""


class FrameClock:
    """The frames of one session. ``counts`` belongs to its stage.

    The first frame is due ``frame_s`` after the first call of ``wait_s``. ``opened_s`` is the time at which the user
    began to speak; sound before the first frame, while the stage computed its prompt, counts as late.
    """

    def __init__(self, duplex: Duplex, counts: DuplexCounts, opened_s: float) -> None:
        self.frame_s = duplex.frame_s
        self.counts = counts
        self.ended = False
        """Whether no more sound will come."""
        self._size = duplex.frame_samples
        self._rate_hz = duplex.rate_hz
        self._phase_s = duplex.frame_s / PHASES
        self._opened_s = opened_s
        self._sound: Pcm = np.zeros(0, np.int16)
        self._due_s = math.inf  # when the next frame is due; infinity before the first call of wait_s
        self._number = 0
        self._awaited = False  # whether the frame is due and its sound is still missing
        self._silent = True  # whether the sound of the last frame was missing
        self._heard = False  # whether any sound has come
        self._owed = 0  # samples that are late if they still come: silence was stepped in their place
        self._dropped = 0  # late samples that are not yet counted, less than a frame
        self._on_time = 0  # consecutive frames that were complete when they were due; below 0: that were missing
        self._least = math.inf  # the least number of samples after a frame, since the last review
        self._reviewed = 0

    @property
    def due_s(self) -> float:
        """When the next frame is due, in monotonic seconds; infinity before the session's start."""
        return self._due_s

    @property
    def full(self) -> bool:
        """Whether enough sound waits, so that the adapter should wait as well."""
        return len(self._sound) >= FULL_S * self._rate_hz

    @property
    def awaited(self) -> bool:
        """Whether sound that the next frame was waiting for has arrived, so that ``wait_s`` has changed."""
        return self._awaited and self._complete

    @property
    def over(self) -> bool:
        """Whether the sound has ended and all of it was stepped."""
        return self.ended and not len(self._sound)

    def feed(self, pcm: Pcm) -> None:
        """Add the user's sound: int16 [samples], any number of them."""
        self._heard = self._heard or len(pcm) > 0
        self._sound = np.concatenate((self._sound, pcm)) if len(self._sound) else pcm
        self._drop_late()

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next frame steps; 0 or less: now."""
        if self._due_s == math.inf:
            self._start(now_s)
        if self._complete and self._awaited:  # it came late: from now on, frames are due that much later
            self._awaited = False
            late_s = min(max(0.0, now_s - self._due_s), GRACE_S)  # the rest is the loop's own delay, as after a stall
            self._due_s = self._rounded(self._due_s + late_s)
            self._on_time = 0
        if self._complete or now_s < self._due_s:
            return self._due_s - now_s
        self._awaited = True
        return self._due_s + self._grace_s - now_s

    def take(self, now_s: float) -> DuplexFrame:
        """Return the next frame; call it only if ``wait_s`` is 0 or less."""
        self._skip(int((now_s - self._due_s) / self.frame_s))
        self._silent = self._conceal() if not self._complete else False
        frame = DuplexFrame(self._number, self._due_s, self._first())
        self._sound = self._sound[self._size :]
        self._awaited = False
        self._number += 1
        self._due_s += self.frame_s
        self.counts.frames += 1
        self._on_time = min(self._on_time, 0) - 1 if self._silent else max(self._on_time, 0) + 1
        if not -STOPPED < self._on_time < ON_TIME:
            self._owed = 0
        self._review()
        return frame

    def late(self, frame: DuplexFrame, ended_s: float) -> bool:
        """Whether the output of a frame was not ready when the next frame was due."""
        return ended_s > frame.due_s + self.frame_s

    @property
    def _complete(self) -> bool:
        return self.ended or len(self._sound) >= self._size

    @property
    def _grace_s(self) -> float:
        """Seconds to wait for the rest of a frame: none while no sound comes."""
        return 0.0 if self._silent and not len(self._sound) else GRACE_S

    def _start(self, now_s: float) -> None:
        lost_s = now_s - self._opened_s
        if lost_s >= self.frame_s:
            self._owed = int(lost_s * self._rate_hz)
            self._drop_late()
        self._due_s = self._rounded(now_s + self.frame_s)

    def _rounded(self, at_s: float) -> float:
        """Return the first possible due time from ``at_s`` on."""
        return math.ceil(at_s / self._phase_s - 1e-6) * self._phase_s

    def _skip(self, frames: int) -> None:
        """Leave out frames whose time has passed, with their sound."""
        if frames <= 0:
            return
        there = min(len(self._sound), frames * self._size)
        self._sound = self._sound[there:]
        self._owed += frames * self._size - there if self._heard else 0
        self._number += frames
        self._due_s += frames * self.frame_s
        self.counts.skipped += frames

    def _conceal(self) -> bool:
        """Let silence take the place of the missing sound, which is late from now on.

        Only sound that stops moves the clock: otherwise a sample now and then would slow the model down.
        """
        if not self._silent:
            self._due_s = self._rounded(self._due_s + self._grace_s)
        if self._heard:
            self.counts.concealed += 1
            self._owed += self._size - len(self._sound)
        return True

    def _first(self) -> Wave:
        """Return the samples of the next frame, followed by silence if there are too few."""
        wave = np.zeros(self._size, np.float32)
        sound = self._sound[: self._size]
        wave[: len(sound)] = sound.astype(np.float32) / np.float32(32768)
        return wave

    def _drop_late(self) -> None:
        """Drop late sound that comes at once. Sound that comes at the pace of speech is new."""
        late = min(len(self._sound) - CUSHION * self._size, self._owed)
        if late > 0:
            self._sound = self._sound[late:]
            self._owed -= late
            frames, self._dropped = divmod(self._dropped + late, self._size)
            self.counts.dropped += frames

    def _review(self) -> None:
        """Let frames be due a phase earlier if there was always enough sound for that."""
        self._least = min(self._least, len(self._sound))
        self._reviewed += 1
        if self._reviewed == REVIEW:
            self._due_s -= self._phase_s if self._least >= self._phase_s * self._rate_hz else 0.0
            self._least = math.inf
            self._reviewed = 0
