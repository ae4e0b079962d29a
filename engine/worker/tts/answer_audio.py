"""The sound of an answer, with marks that say which words have been spoken by which sample."""

from __future__ import annotations

import numpy as np

from engine.chunk import Audio
from engine.core import SPEAKER_RATE_HZ, Wave
from engine.worker.tts.clause_audio import ClauseSound
from engine.worker.tts.clauses import Clause
from engine.worker.tts.text_breaks import is_wide

LETTER_S = 0.065
"""Seconds that a letter takes to say, until it has been measured."""
MOST_UNSAID = 400
"""Characters in a row of which the voice could say nothing, after which an answer ends."""
MOST = 0.99
"""Upper bound for the share of a clause before its last sample."""


class AnswerSound:
    """An answer's sound, whose clauses may have any sample rate.

    Most voices do not report how much of a clause they have said. Then the places of its words are estimated from the
    number of letters and from the speed of the clauses before it.

    Args:
        most: Samples at SPEAKER_RATE_HZ after which the answer ends.
        letter_s: Seconds that a letter takes to say, as measured so far.
        samples: Samples at SPEAKER_RATE_HZ that another replica has sent already.
    """

    def __init__(self, most: int, letter_s: float = LETTER_S, samples: int = 0) -> None:
        self.sounded = self.lettered = False
        """Whether there was any sound, and whether there was anything but marks to say."""
        self.letter_s = letter_s
        self._most = most
        self._unsaid = 0  # characters since the last clause that made sound
        self._sound = ClauseSound(SPEAKER_RATE_HZ, samples, most)
        self._rate_hz = SPEAKER_RATE_HZ
        self._clause = Clause("", ())
        self._given = 0  # samples of the clause
        self._last = np.empty(0, np.float32)  # its last sample: the marks at its end are given with one

    @property
    def samples(self) -> int:
        """Samples made by now, at SPEAKER_RATE_HZ."""
        return self._sound.samples

    @property
    def full(self) -> bool:
        """Whether the answer is as long as it may be."""
        return self._sound.full

    @property
    def mute(self) -> bool:
        """Whether the voice has been silent for so long that the answer ends here."""
        return self._unsaid > MOST_UNSAID

    def begin(self, clause: Clause) -> None:
        """Begin a clause: what comes from now on is this clause's."""
        self._clause = clause
        self._given = 0
        self._last = self._last[:0]
        self.lettered = self.lettered or clause.lettered

    def push(self, wave: Wave, rate_hz: int, share: float | None = None) -> list[Audio]:
        """Add a piece of the clause's sound. ``share`` (0 to 1) of the clause has been said at its end, if that is
        known."""
        if not len(wave):
            return []
        if not len(self._last):
            self._begin_sound(rate_hz)
        wave = np.concatenate([self._last, wave])
        self._last = wave[-1:]
        self._given += len(wave) - 1
        if share is None:
            share = self._given / self._rate_hz / self._expected_s
        return list(self._sound.push(wave[:-1], min(share, MOST)))  # the end is marked by the sample that is held back

    def end(self) -> list[Audio]:
        """The clause is over: what was held back of it."""
        if not len(self._last):
            self._unsaid += len(self._clause.text)
            return []
        self._unsaid = 0
        self.letter_s *= (self._given + 1) / self._rate_hz / self._expected_s
        return [*self._sound.push(self._last, 1.0), *self._sound.end()]

    def _begin_sound(self, rate_hz: int) -> None:
        if rate_hz != self._rate_hz:
            self._sound = ClauseSound(rate_hz, self._sound.samples, self._most)
            self._rate_hz = rate_hz
        self._sound.begin(self._clause)
        self.sounded = True

    @property
    def _expected_s(self) -> float:
        """Estimate the clause's length by its letters; an ideograph is as long as three."""
        return self.letter_s * sum(3 if is_wide(one) else 1 for one in self._clause.text)
