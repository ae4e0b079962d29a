"""Spells characters that are a fraction or an exponent (½, ²).

Unicode normalization would turn them into plain digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from engine.english.numbers import cardinal, ordinal

_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+", strict=True))


def _vulgar() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each fraction character with its numerator and denominator."""
    for one in map(chr, (*range(0xBC, 0xBF), *range(0x2150, 0x218A))):
        if match := re.fullmatch(r"(\d+)⁄(\d+)", unicodedata.normalize("NFKC", one)):
            yield one, (match[1], match[2])


_PARTS = dict(_vulgar())
_WRITTEN = re.compile(rf"(\d)?([{''.join(_PARTS)}])|(.*?)([⁻⁺]?[{''.join(_RAISED)[:10]}]+)", re.DOTALL)
_WORD = re.compile(r"\W*[^\W\d_]{3,}")  # a unit has fewer letters
_NAMES = {"2": ("half", "halves"), "4": ("quarter", "quarters")}


def part_of(top: str, bottom: str) -> str:
    """Spell a fraction by its numerator and denominator: 3, 4 -> three quarters."""
    one, many = _NAMES.get(bottom) or ((name := ordinal(bottom)), f"{name}s")
    return f"{cardinal(top)} {one if top == '1' else many}"


def written_out(word: str) -> str:
    """Return a word with its fractions and exponents as separate words; other words are returned unchanged.

    2½ -> 2 and one half; 10² -> 10 squared. A raised number after a word is a footnote mark, and is dropped.
    """
    return word if word.isascii() else _WRITTEN.sub(_apart, word)


def _apart(match: re.Match[str]) -> str:
    if match[2]:
        whole = f"{match[1]} and " if match[1] else ""
        return f"{whole}{part_of(*_PARTS[match[2]])} "
    base, raised = match[3], "".join(_RAISED[one] for one in match[4])
    if not base:
        return raised
    if _WORD.fullmatch(base):
        return f"{base} "
    power = {"2": "squared", "3": "cubed"}.get(raised) or f"to the power of {raised.replace('-', 'minus ')}"
    return f"{'ay' if base == 'a' else base} {power} "
