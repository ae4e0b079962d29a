"""The sound that a voice of any rate makes of clauses, as Audio at SPEAKER_RATE_HZ with its marks in the text.

Each clause is resampled as a sound of its own, in as many pieces as the voice gives it. Knows no voice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.audio.resampler import Resampler
from engine.chunk import Audio
from engine.core import SPEAKER_RATE_HZ, Wave
from engine.worker.tts.clauses import Clause


class ClauseSound:
    """The sound of one answer. ``samples`` of it have been given before, at SPEAKER_RATE_HZ; it ends at ``most``."""

    def __init__(self, rate_hz: int, samples: int = 0, most: int = 1 << 62) -> None:
        self.samples = samples
        self._most = most
        self._ratio = SPEAKER_RATE_HZ / rate_hz
        self._resampler = Resampler(rate_hz, SPEAKER_RATE_HZ, np.float32)
        self._begin = samples  # the first one of the clause
        self._taken = 0  # samples of the clause, at the voice's rate
        self._share = 0.0
        self._clause = Clause("", ())
        self._marks: list[tuple[int, int]] = []  # those that the samples have not come to
        self._marked = 0  # characters, by those that they have

    @property
    def full(self) -> bool:
        """Whether the answer is as long as it may be."""
        return self.samples >= self._most

    def begin(self, clause: Clause) -> None:
        """Begin a clause: what comes from now on is this clause's."""
        self._clause = clause
        self._share = 0.0
        self._begin = self.samples
        self._taken = 0

    def push(self, wave: NDArray[Any], share: float) -> Iterator[Audio]:
        """Samples at the voice's rate, at whose end so much (0 to 1) of the clause has been said."""
        begin = self._taken
        self._taken = self._taken + len(wave)
        span = max(share - self._share, 1e-9)
        for at, characters in self._clause.words():
            if self._share < at <= share:
                sample = begin + (at - self._share) / span * len(wave)
                self._marks.append((self._begin + round(sample * self._ratio), characters))
        self._share = share
        sound = np.nan_to_num(np.asarray(wave, np.float32), posinf=1.0, neginf=-1.0)
        yield from self._give(self._resampler.push(sound))

    def end(self) -> Iterator[Audio]:
        """The clause is over: what the resampler held back of it, and the marks at its end."""
        rest = self._resampler.flush()
        end = self.samples + len(rest)
        said = self._clause.end
        self._marks = [(min(sample, end), characters) for sample, characters in self._marks if characters != said]
        if self._marked < said:
            self._marks.append((end, said))
        yield from self._give(rest)

    def _give(self, wave: Wave) -> Iterator[Audio]:
        wave = np.clip(wave[: max(0, self._most - self.samples)], -1.0, 1.0)
        if not len(wave):
            return
        self.samples += len(wave)
        due = tuple(mark for mark in self._marks if mark[0] <= self.samples)
        self._marks = self._marks[len(due) :]
        self._marked = due[-1][1] if due else self._marked
        yield Audio(wave, due)
