"""Recognizes Roman numerals by the word before them: Chapter IV, Henry VIII."""

from __future__ import annotations

import re

from engine.english.lexicon import NUMBERED, RULERS
from engine.english.numbers import cardinal, ordinal

_NUMERAL = re.compile(r"(?=[CLXVI])(C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_NOT_NAMES = frozenset(
    {"a", "an", "and", "at", "by", "for", "her", "his", "in", "is", "it", "my", "no", "of", "on", "or", "our"}
    | {"that", "the", "their", "this", "to", "we", "your"}
)
"""Words that may begin a sentence with a capital letter, and that no numeral follows."""


def numeral(word: str, before: str) -> str:
    """Return the spoken form of a Roman numeral after the word ``before``; "" if the word is not a numeral."""
    name = before.lstrip("(\"'“*_")
    if not _NUMERAL.fullmatch(word) or not (name[:1].isupper() and name.isalpha()):
        return ""
    if name.lower() in RULERS and len(word) + (word in "VX") > 1:
        return f"the {ordinal(str(_value(word)))}"
    if name.lower() in NUMBERED and (len(word) > 1 or word in "IVX"):
        return cardinal(str(_value(word)))
    named = len(name) > 1 and not name.isupper() and name.lower() not in _NOT_NAMES
    return cardinal(str(_value(word))) if named and len(word) > 1 and set(word) <= {*"IVX"} else ""


def _value(word: str) -> int:
    values = [_VALUES[letter] for letter in word]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))
