"""Converts streaming written English to spoken words: lowercase letters, apostrophes, spaces and the pauses `,` `.`
`?`.

Numbers, times, dates, money, units, abbreviations, acronyms, addresses and signs are spelled out; words of another
alphabet are mentioned ("something in greek"), and other unspeakable text is dropped. Every letter is returned with the
index of its source character.

A word is returned as soon as the space after it arrives. Few words wait for the next one: an amount of money ("$3
million"), a full hour ("5:00 PM"), and digits that may begin a telephone number ("(415) 555-2671").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from engine.english import telephone
from engine.english.lexicon import MAGNITUDES
from engine.english.numbers import NUMBER, money, year
from engine.english.word import CLOSING, pause, speak

_MONEY = re.compile(rf"[-+(]?[$€£¥₹](?:{NUMBER})")
_WAITS = re.compile(rf"{_MONEY.pattern}|\d{{1,2}}:00|10\d\d|{telephone.WAITS}")
_HALVES = frozenset({"am", "pm", "a.m", "p.m"})
_ERAS = frozenset({"ad", "bc", "bce", "ce"})

LONGEST_WORD = 200  # characters; more without a blank is cut, so that no input is held back without end


@dataclass(frozen=True, slots=True)
class Said:
    """Spoken letters and, for each, the index of its source character in all text fed so far."""

    letters: str
    sources: tuple[int, ...]

    def __add__(self, other: Said) -> Said:
        return Said(self.letters + other.letters, self.sources + other.sources)


NOTHING = Said("", ())


class Speller:
    """The speller of one text: feed its pieces, and flush once at the end.

    The cuts between pieces do not affect the output.
    """

    def __init__(self) -> None:
        self._begin = 0  # index of the first character of self._word
        self._word = ""
        self._waiting: tuple[str, int, str] | None = None  # a word, where it begins, and the word before it
        self._dialing = False  # whether the last word belongs to a telephone number
        self._before = ""  # the word before, as written
        self._last = ""  # the last letter said

    def feed(self, text: str, start: int | None = None) -> Said:
        """Return the spoken letters that are final.

        ``start`` is the index of the piece in the whole text, if it does not follow the previous piece. The text left
        out between them is not spoken, but counts in the indices.
        """
        if start is not None:
            self._begin = start - len(self._word)
        return _join(self._feed(text))

    def flush(self) -> Said:
        """Return the rest. If anything was spoken, it ends with a full stop or a question mark."""
        said = [self._end_word(), self._release("")]
        if self._last and self._last not in ".?":
            said.append(self._say(".", self._begin - 1, 1))
        return _join(said)

    def _feed(self, text: str) -> Iterator[Said]:
        for character in text:
            if character.isspace():
                yield self._end_word()
                self._begin += 1
                if character == "\n" and self._last not in " ,.?" and self._last:
                    yield self._release("")
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
        before = self._before
        self._before = word
        bare = word.rstrip(CLOSING)
        is_magnitude = self._waits_for_magnitude and bare.lower() in MAGNITUDES
        said = self._release(word)
        if is_magnitude:
            return said
        if self._dialing and telephone.goes_on(bare):
            return said + self._say(telephone.dialed(bare) + pause(word[len(bare) :]), begin, len(word))
        self._dialing = False
        if _WAITS.fullmatch(word):
            self._waiting = (word, begin, before)
            return said
        return said + self._say(speak(word, before), begin, len(word))

    @property
    def _waits_for_magnitude(self) -> bool:
        return self._waiting is not None and bool(_MONEY.fullmatch(self._waiting[0]))

    def _release(self, after: str) -> Said:
        """Spell the waiting word. ``after`` is the next word, or "" if the line has none."""
        if self._waiting is None:
            return NOTHING
        word, begin, before = self._waiting
        self._waiting = None
        bare = after.rstrip(CLOSING)
        if _MONEY.fullmatch(word):
            magnitude = bare.lower() if bare.lower() in MAGNITUDES else ""
            spoken = money(word, magnitude) + (pause(after) if magnitude else "")
        elif telephone.begins(word, bare):
            self._dialing = True
            spoken = telephone.dialed(word)
        elif word.endswith(":00") and bare.lower() in _HALVES:
            spoken = speak(word.removesuffix(":00"), before)
        elif word.isdecimal() and len(word) == 4 and bare.lower() in _ERAS:
            spoken = year(word)
        else:
            spoken = speak(word, before)
        return self._say(spoken, begin, len(word))

    def _say(self, spoken: str, begin: int, length: int) -> Said:
        """Add a space before words, drop repeated pauses, and map each letter to a source character."""
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
