"""Audio of an answer, with marks that map audio positions to positions in the answer's text."""

from __future__ import annotations

import numpy as np

from engine.chunk import Audio
from engine.core import SPEAKER_RATE_HZ, Wave
from engine.worker.tts.clause_audio import ClauseSound
from engine.worker.tts.clauses import Clause
from engine.worker.tts.text_breaks import is_wide

LETTER_S = 0.065
"""Initial estimate of the seconds per letter, until measured."""
MOST_UNSAID = 400
"""Consecutive characters without sound after which an answer ends."""
MOST = 0.99
"""Maximum share of a clause that counts as spoken before its last sample."""


class AnswerSound:
    """Audio of one answer, whose clauses may have any sample rate.

    Most voices do not report how much of a clause they have spoken. The positions of its words are then estimated from
    the number of letters and the speaking rate of the earlier clauses.

    Args:
        most: Samples at SPEAKER_RATE_HZ after which the answer ends.
        letter_s: Seconds per letter, as measured so far.
        samples: Samples at SPEAKER_RATE_HZ that another replica has already sent.
    """

    def __init__(self, most: int, letter_s: float = LETTER_S, samples: int = 0) -> None:
        self.sounded = self.lettered = False
        """``sounded``: any audio was made. ``lettered``: any clause had letters or digits."""
        self.letter_s = letter_s
        self._most = most
        self._unsaid = 0  # characters since the last clause that made sound
        self._sound = ClauseSound(SPEAKER_RATE_HZ, samples, most)
        self._rate_hz = SPEAKER_RATE_HZ
        self._clause = Clause("", ())
        self._given = 0  # samples of the current clause
        self._last = np.empty(0, np.float32)  # its last sample, held back to carry the marks at its end

    @property
    def samples(self) -> int:
        """Number of samples generated so far, at SPEAKER_RATE_HZ."""
        return self._sound.samples

    @property
    def full(self) -> bool:
        """Whether the answer has reached its maximum length."""
        return self._sound.full

    @property
    def mute(self) -> bool:
        """Whether the voice has been silent for more than MOST_UNSAID characters, so that the answer should end."""
        return self._unsaid > MOST_UNSAID

    def begin(self, clause: Clause) -> None:
        """Begin a clause, to which all audio up to ``end`` belongs."""
        self._clause = clause
        self._given = 0
        self._last = self._last[:0]
        self.lettered = self.lettered or clause.lettered

    def push(self, wave: Wave, rate_hz: int, share: float | None = None) -> list[Audio]:
        """Add a piece of the clause's audio.

        ``share`` (0 to 1) is the part of the clause that has been spoken at the end of ``wave``; None estimates it.
        """
        if not len(wave):
            return []
        if not len(self._last):
            self._begin_sound(rate_hz)
        wave = np.concatenate([self._last, wave])
        self._last = wave[-1:]
        self._given += len(wave) - 1
        if share is None:
            share = self._given / self._rate_hz / self._expected_s
        return list(self._sound.push(wave[:-1], min(share, MOST)))  # the held-back sample carries the end mark

    def end(self) -> list[Audio]:
        """End the clause and return its remaining audio."""
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
        """Estimated duration of the clause from its letters; see ``letters_of``."""
        return self.letter_s * sum(map(letters_of, self._clause.text))


def letters_of(character: str) -> int:
    """Return the number of letters that take as long to say as this character.

    A digit is said as a word. A capital often belongs to an abbreviation, which is spelled.
    """
    if is_wide(character):
        return 3
    return 5 if character.isdecimal() else 2 if character.isupper() else 1
