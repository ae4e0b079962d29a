"""Written English -> what one says: lowercase letters, apostrophes, blanks and the pauses `,` `.` `?`, while the
text still arrives.

Numbers, times, dates, money, units, abbreviations, acronyms, addresses and signs are spelled out; words of another
alphabet are mentioned ("something in greek"), and what else cannot be said is dropped. Every letter knows the
character it came from. Knows no model, no voice and no language but English.

A word is spoken as soon as the blank after it is there; only an amount of money waits for the next word ("$3 million").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from engine.english.lexicon import MAGNITUDES
from engine.english.numbers import NUMBER, money
from engine.english.word import CLOSING, pause, speak

LONGEST_WORD = 200  # characters; more without a blank is cut, so that no input is held back without end


@dataclass(frozen=True, slots=True)
class Said:
    """Letters to say and, for each, the index of its source character in all text fed so far."""

    letters: str
    sources: tuple[int, ...]

    def __add__(self, other: Said) -> Said:
        return Said(self.letters + other.letters, self.sources + other.sources)


NOTHING = Said("", ())


class Speller:
    """Feed pieces of text, flush once at the end. How the text is cut makes no difference to the whole output."""

    def __init__(self) -> None:
        self._begin = 0  # index of the first character of self._word
        self._word = ""
        self._money: tuple[str, int] | None = None
        self._before = ""  # the word before, as written
        self._last = ""  # the last letter said

    def feed(self, text: str, start: int | None = None) -> Said:
        """Return what can be said now. ``start`` is where the piece begins in the whole text, if not where the last one
        ended: what is left out between them is not said, and counts.
        """
        if start is not None:
            self._begin = start - len(self._word)
        return _join(self._feed(text))

    def flush(self) -> Said:
        """Return the rest, closed by a full stop if something was said and it ends without one."""
        said = [self._end_word(), self._release_money("")]
        if self._last and self._last not in ".?":
            said.append(self._say(".", self._begin - 1, 1))
        return _join(said)

    def _feed(self, text: str) -> Iterator[Said]:
        for character in text:
            if character.isspace():
                yield self._end_word()
                self._begin += 1
                if character == "\n" and self._last not in " ,.?" and self._last:
                    yield self._release_money("")
                    yield self._say(",", self._begin - 1, 1)
                continue
            self._word += character
            if len(self._word) >= LONGEST_WORD:
                yield self._end_word()

    def _end_word(self) -> Said:
        word, begin = self._word, self._begin
        if not word:
            return NOTHING
        self._word = ""
        self._begin = begin + len(word)
        magnitude = word.rstrip(CLOSING).lower()
        if self._money and magnitude in MAGNITUDES:
            released = self._release_money(magnitude, tail=pause(word))
            self._before = word
            return released
        released = self._release_money("")
        if re.fullmatch(rf"[-+(]?[$€£¥](?:{NUMBER})", word):
            self._money = (word, begin)
            self._before = word
            return released
        said = released + self._say(speak(word, self._before), begin, len(word))
        self._before = word
        return said

    def _release_money(self, magnitude: str, tail: str = "") -> Said:
        if not self._money:
            return NOTHING
        (word, begin) = self._money
        self._money = None
        return self._say(money(word, magnitude) + tail, begin, len(word))

    def _say(self, spoken: str, begin: int, length: int) -> Said:
        """Put a blank before words and drop pauses that follow pauses; spread the letters over the source
        characters.
        """
        spoken = " ".join(re.sub(r"\s*([,.?])[ ,.?]*", r"\1 ", spoken).split())
        if self._last in ("", ",", ".", "?"):
            spoken = spoken.lstrip(",.? ")
        if not spoken:
            return NOTHING
        shift = 1 if self._last and spoken[0] not in ",.?" else 0
        sources = tuple(begin + index * length // len(spoken) for index in range(len(spoken)))
        self._last = spoken[-1]
        return Said(" " * shift + spoken, (begin,) * shift + sources)


def _join(parts: Iterator[Said] | list[Said]) -> Said:
    parts = list(parts)
    return Said("".join(part.letters for part in parts), tuple(index for part in parts for index in part.sources))
