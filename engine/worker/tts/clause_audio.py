"""Converts the audio of a voice, at any rate and clause by clause, to Audio at SPEAKER_RATE_HZ with text marks.

Each clause is resampled separately, in as many pieces as the voice produces.
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
    """Audio of one answer.

    Args:
        rate_hz: Sample rate of the voice.
        samples: Samples at SPEAKER_RATE_HZ that were already sent.
        most: Samples at SPEAKER_RATE_HZ after which the answer ends.
    """

    def __init__(self, rate_hz: int, samples: int = 0, most: int = 1 << 62) -> None:
        self.samples = samples
        self._most = most
        self._ratio = SPEAKER_RATE_HZ / rate_hz
        self._resampler = Resampler(rate_hz, SPEAKER_RATE_HZ, np.float32)
        self._begin = samples  # first sample of the clause
        self._taken = 0  # samples of the clause, at the voice's rate
        self._share = 0.0
        self._clause = Clause("", ())
        self._marks: list[tuple[int, int]] = []  # (sample, character) marks not yet sent
        self._marked = 0  # characters covered by the marks already sent

    @property
    def full(self) -> bool:
        """Whether the answer has reached its maximum length."""
        return self.samples >= self._most

    def begin(self, clause: Clause) -> None:
        """Begin a clause, to which all audio up to ``end`` belongs."""
        self._clause = clause
        self._share = 0.0
        self._begin = self.samples
        self._taken = 0

    def push(self, wave: NDArray[Any], share: float) -> Iterator[Audio]:
        """Add samples at the voice's rate; ``share`` (0 to 1) of the clause has been spoken at their end."""
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
        """End the clause: yield the resampler's remaining samples and the marks at the clause's end."""
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
