"""Rates every place where streaming text may be cut: best between sentences, worst within a word.

Numbers, times, addresses, abbreviations and grapheme clusters stay together. Covers the punctuation of most languages
and the abbreviations of a few.
"""

from __future__ import annotations

import re
import unicodedata
from enum import IntEnum
from functools import lru_cache


class Level(IntEnum):
    """Quality of a place to cut: a higher value is better."""

    GRAPHEME = 0
    """Within a word or a run of symbols, as a last resort."""
    TIGHT = 1
    """A space within a unit, such as "Dr. Smith" or "3 km"."""
    IDEOGRAPH = 2
    """Between two ideographs, possibly within a word."""
    WORD = 3
    PHRASE = 4
    SENTENCE = 5


_MARKS = {
    **dict.fromkeys(".!?。！？｡؟۔।॥", Level.SENTENCE),
    **dict.fromkeys(",;:…，、；：､،؛—–", Level.PHRASE),
}
_BLANKLESS = frozenset("。！？｡，、；：､…—।॥")
"""Marks that are not followed by a space."""
_CLOSERS = "\"')]}”’»›」』）】》〉］｝*_`~"
_OPENERS = frozenset("([{“‘«‹„「『（【《〈［｛¿¡")
_DASHES = frozenset("-–—―~")
_STICKY = frozenset("ーｰ々ゝゞヽヾぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ%％°℃")
"""Characters that stay with the preceding one."""

_BEFORE_MORE = frozenset({
    "approx.", "art.", "bzw.", "ca.", "capt.", "cf.", "col.", "dr.", "dra.", "e.g.", "fig.", "figs.", "gen.", "gov.",
    "hon.", "i.e.", "lt.", "m.", "mag.", "mme.", "mr.", "mrs.", "ms.", "mt.", "mx.", "nr.", "p.", "pp.", "pres.",
    "prof.", "rep.", "rev.", "sen.", "sgt.", "sr.", "sra.", "srta.", "st.", "str.", "u.a.", "vgl.", "vol.", "vs.",
    "z.b.",
})  # fmt: skip
"""Abbreviations that are always followed by another word."""
_WITHIN = frozenset({
    "a.d.", "a.m.", "b.c.", "co.", "corp.", "dept.", "est.", "etc.", "inc.", "jr.", "ltd.", "p.m.", "ph.d.", "usw.",
})  # fmt: skip
"""Abbreviations that are rarely at the end of a sentence."""
_BEFORE_NUMBERS = frozenset({"no.", "nos.", "ch.", "sec."})
_DOTTED = re.compile(r"(?:[^\W\d_]\.){2,}")  # U.S., i.p.a.
_INITIAL = re.compile(r"[^\W\d_]\.")
_ITEM = re.compile(r"\(?(?:\d{1,3}|[^\W\d_])\)|\d{1,2}\.")  # a list number, or an ordinal as in German dates
_NUMBER = re.compile(r"[$€£¥#]?[-+]?\d[\d.,:/]*")


class Breaks:
    """Reads a text character by character; ``push`` rates the cut before each one."""

    def __init__(self) -> None:
        self._token = ""  # text since the last space or ideograph, at most LONGEST_TOKEN characters
        self._blank = ""  # the spaces after it
        self._last = ""
        self._mark: Level | None = None  # level of trailing marks that need no space after them
        self._flags = 0  # trailing regional indicators; two make a flag
        self._first = True  # whether the token is the first of its line

    def push(self, character: str) -> Level | None:
        """Rate the place directly before this character for a cut. None if a cut is not allowed there."""
        if character.isascii() and character.isalnum() and self._last.isascii() and self._last.isalnum():
            self._token = (self._token + character)[-LONGEST_TOKEN:]
            self._last = character
            return Level.GRAPHEME  # fast path for the most common case
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
        """Return the level of the trailing punctuation, ignoring closing quotes and brackets."""
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
        """Rate a cut at a space, where a word or sign has ended and another begins with this character."""
        core = self._token.rstrip(_CLOSERS) or self._token
        if not core:
            return Level.TIGHT  # the text begins with spaces
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
            return Level.WORD  # an unknown abbreviation
        return Level.SENTENCE


LONGEST_TOKEN = 32  # characters of a word's end that are kept


@lru_cache(4096)
def is_ideograph(character: str) -> bool:
    """Return whether the character's script is written without spaces: Chinese, kana, Thai, Lao, Khmer or Burmese."""
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
    """Return whether a character takes about as long to say as half a word: ideographs, kana, Hangul, emoji."""
    return unicodedata.east_asian_width(character) in "WF"


@lru_cache(4096)
def _extends(character: str) -> bool:
    """Return whether a character belongs to the preceding one (approximates Unicode grapheme clusters)."""
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
