"""Places where a text may be cut while it arrives, and how well: between sentences best, within a word only in need.

Numbers, times, addresses and abbreviations hold together, and so do characters that are seen as one. Knows no voice;
of languages it knows the marks of most, and the abbreviations of a few.
"""

from __future__ import annotations

import re
import unicodedata
from enum import IntEnum
from functools import lru_cache


class Level(IntEnum):
    """The degree to which a place suits a cut."""

    GRAPHEME = 0
    """Any place within a word, or a row of signs: only where a text has no better place."""
    TIGHT = 1
    """A blank within what belongs together: "Dr. Smith", "3 km"."""
    IDEOGRAPH = 2
    """The place between two ideographs, which may be within a word."""
    WORD = 3
    PHRASE = 4
    SENTENCE = 5


_MARKS = {
    **dict.fromkeys(".!?。！？｡؟۔।॥", Level.SENTENCE),
    **dict.fromkeys(",;:…，、；：､،؛—–", Level.PHRASE),
}
_BLANKLESS = frozenset("。！？｡，、；：､…—।॥")
"""Marks that no blank follows."""
_CLOSERS = "\"')]}”’»›」』）】》〉］｝*_`~"
_OPENERS = frozenset("([{“‘«‹„「『（【《〈［｛¿¡")
_DASHES = frozenset("-–—―~")
_STICKY = frozenset("ーｰ々ゝゞヽヾぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ%％°℃")
"""Characters that stay with the one before them."""

_BEFORE_MORE = frozenset({
    "approx.", "art.", "bzw.", "ca.", "capt.", "cf.", "col.", "dr.", "dra.", "e.g.", "fig.", "figs.", "gen.", "gov.",
    "hon.", "i.e.", "lt.", "m.", "mag.", "mme.", "mr.", "mrs.", "ms.", "mt.", "mx.", "nr.", "p.", "pp.", "pres.",
    "prof.", "rep.", "rev.", "sen.", "sgt.", "sr.", "sra.", "srta.", "st.", "str.", "u.a.", "vgl.", "vol.", "vs.",
    "z.b.",
})  # fmt: skip
"""Abbreviations that something always follows."""
_WITHIN = frozenset({
    "a.d.", "a.m.", "b.c.", "co.", "corp.", "dept.", "est.", "etc.", "inc.", "jr.", "ltd.", "p.m.", "ph.d.", "usw.",
})  # fmt: skip
"""Abbreviations that may stand at a sentence's end, but mostly do not."""
_BEFORE_NUMBERS = frozenset({"no.", "nos.", "ch.", "sec."})
_DOTTED = re.compile(r"(?:[^\W\d_]\.){2,}")  # U.S., i.p.a.
_INITIAL = re.compile(r"[^\W\d_]\.")
_ITEM = re.compile(r"\(?(?:\d{1,3}|[^\W\d_])\)|\d{1,2}\.")  # the number of a list; or an ordinal, as of German dates
_NUMBER = re.compile(r"[$€£¥#]?[-+]?\d[\d.,:/]*")


class Breaks:
    """A reader of a text by characters; ``push`` returns how well it may be cut before each."""

    def __init__(self) -> None:
        self._token = ""  # since the last blank or ideograph; of a long one only its end
        self._blank = ""  # the blanks behind it
        self._last = ""
        self._mark: Level | None = None  # the level of marks at the end that no blank need follow
        self._flags = 0  # letters of flags at the end: two make one
        self._first = True  # whether the token is its line's first

    def push(self, character: str) -> Level | None:
        """Return how well the text may be cut before its next character; None: not at all."""
        if character.isascii() and character.isalnum() and self._last.isascii() and self._last.isalnum():
            self._token = (self._token + character)[-LONGEST_TOKEN:]
            self._last = character
            return Level.GRAPHEME  # most are such: for speed
        level = self._level(character) if self._last else None
        self._flags = self._flags + 1 if _is_flag(character) else 0
        if character.isspace():
            self._blank += character if len(self._blank) < LONGEST_TOKEN else ""
            self._mark = None
        else:
            if self._blank:
                self._first = "\n" in self._blank
                self._token = self._blank = ""
            elif is_ideograph(self._last or " ") and character not in _MARKS and character not in _CLOSERS:
                self._token = ""
            self._token = (self._token + character)[-LONGEST_TOKEN:]
            self._mark = self._marked(character)
        self._last = character
        return level

    def _marked(self, character: str) -> Level | None:
        """Return the weight of the marks at the end of the text, whatever closes behind them."""
        if character in _BLANKLESS:
            return max(_MARKS[character], self._mark or Level.GRAPHEME)
        return self._mark if character in _CLOSERS else None

    def _level(self, character: str) -> Level | None:
        if _joined(self._last, character) or (_is_flag(character) and self._flags % 2):
            return None
        if character.isspace():
            return Level.GRAPHEME
        if self._blank:
            return Level.SENTENCE if "\n" in self._blank else self._behind_blank(character)
        return self._without_blank(character)

    def _without_blank(self, character: str) -> Level:
        if character in _STICKY or character in _CLOSERS or character in _MARKS:
            return Level.GRAPHEME
        if self._mark is not None:
            number = character.isdigit() and self._token.rstrip("".join(_BLANKLESS))[-1:].isdigit()
            return Level.GRAPHEME if number else self._mark
        if self._last in _OPENERS or not (is_ideograph(self._last) or is_ideograph(character)):
            return Level.GRAPHEME
        return Level.IDEOGRAPH

    def _behind_blank(self, character: str) -> Level:
        """A word or sign has ended, and another begins with this character."""
        core = self._token.rstrip(_CLOSERS) or self._token
        if not core:
            return Level.TIGHT  # the text begins with blanks
        mark = _MARKS.get(core[-1])
        if not any(map(str.isalnum, core)):
            return Level.PHRASE if _DASHES.issuperset(core) and not self._first else Level.TIGHT
        if _ITEM.fullmatch(self._token) or (_NUMBER.fullmatch(core) and mark is None):
            return Level.TIGHT
        if mark is None:
            return Level.WORD
        level = self._behind_period(core.lstrip("".join(_OPENERS) + "\"'"), character) if core[-1] == "." else mark
        return Level.PHRASE if level == Level.SENTENCE and character.islower() else level

    def _behind_period(self, word: str, character: str) -> Level:
        known = word.lower()
        if known in _BEFORE_MORE or (known in _BEFORE_NUMBERS and character.isdigit()):
            return Level.TIGHT
        if _INITIAL.fullmatch(word) and word != "I.":
            return Level.TIGHT
        if known in _WITHIN or _DOTTED.fullmatch(word):
            return Level.WORD
        if character.islower() and not word.endswith(".."):
            return Level.WORD  # an abbreviation that nobody here knows
        return Level.SENTENCE


LONGEST_TOKEN = 32  # the part of a word's end that has to be known


@lru_cache(4096)
def is_ideograph(character: str) -> bool:
    """Whether it is of a script that is written without blanks: Chinese characters, kana, Thai, Lao, Khmer, Burmese."""
    code = ord(character)
    return (
        0x3040 <= code <= 0x30FF
        or 0x3400 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x3FFFF
        or 0x0E00 <= code <= 0x0EFF
        or 0x1000 <= code <= 0x109F
        or 0x1780 <= code <= 0x17FF
    )


@lru_cache(4096)
def is_wide(character: str) -> bool:
    """Whether it takes about as long to say as a word's half: ideographs, kana, syllables of Hangul, emoji."""
    return unicodedata.east_asian_width(character) in "WF"


@lru_cache(4096)
def _extends(character: str) -> bool:
    """Whether it is seen as a part of the character before it (Unicode's grapheme clusters, mostly)."""
    code = ord(character)
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or code == 0x200D
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
    )


def _joined(before: str, character: str) -> bool:
    return before == "\u200d" or _extends(character) or (before == "\r" and character == "\n")


def _is_flag(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF
