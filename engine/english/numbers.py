"""Numbers, years and amounts of money in spoken English."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from engine.english.lexicon import CURRENCIES

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
"""The pattern of a written number: with or without commas between thousands, with or without decimals."""

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_IMPORTING = Lock()  # stages of one process are made in threads of their own


@cache
def grammar() -> Any:
    """Return inflect's number rules. Stages call this while they start, because the import takes time."""
    with _without_type_checks():
        import inflect

    return inflect.engine()


@contextmanager
def _without_type_checks() -> Generator[None]:
    """Keep inflect's import from having typeguard rewrite its methods, which would add two seconds to each start.

    The rewritten methods would check their arguments, which are always strings of digits here.
    """
    import typeguard

    with _IMPORTING:
        checked = typeguard.typechecked
        typeguard.typechecked = _as_it_is
        try:
            yield
        finally:
            typeguard.typechecked = checked


def _as_it_is(target: Any) -> Any:
    return target


def cardinal(digits: str) -> str:
    """Spell a number of at most 15 digits: 125 -> one hundred and twenty five."""
    return str(grammar().number_to_words(str(int(digits)))).replace("-", " ").replace(",", "")


def ordinal(digits: str) -> str:
    return str(grammar().number_to_words(grammar().ordinal(str(int(digits))))).replace("-", " ").replace(",", "")


def one_by_one(digits: str) -> str:
    """Spell digits one by one, with a pause after every third. A single last digit joins the group before it."""
    groups = re.findall(r"\d{3}(?=\d{2})|\d+", digits) if len(digits) > 4 else [digits]
    return ", ".join(" ".join(_DIGITS[int(digit)] for digit in group) for group in groups)


def digits_or_number(written: str) -> str:
    """Spell a number like 12,345.67 or 007. Long numbers, and those with a leading zero, are spelled digit by digit."""
    whole, _, fraction = written.replace(",", "").partition(".")
    if not whole:
        spoken = ""
    elif (len(whole) > 1 and whole[0] == "0") or len(whole) > 15 or (len(whole) > 7 and "," not in written):
        spoken = one_by_one(whole)
    else:
        spoken = cardinal(whole)
    return spoken + (" point " + " ".join(_DIGITS[int(digit)] for digit in fraction) if fraction else "")


def year(digits: str) -> str:
    """Spell a year: 1984 -> nineteen eighty four; 2005 -> two thousand and five."""
    century, rest = int(digits[:2]), int(digits[2:])
    if century % 10 == 0 and rest < 10:
        return cardinal(digits)
    if rest == 0:
        return cardinal(digits[:2]) + " hundred"
    return cardinal(digits[:2]) + (" oh " if rest < 10 else " ") + cardinal(digits[2:])


def money(word: str, magnitude: str = "") -> str:
    """Spell an amount: $3.50 -> three dollars and fifty cents.

    A ``magnitude`` ("million") comes before the currency.
    """
    match = re.search(rf"([$€£¥₹])({NUMBER})", word)
    assert match, word
    (one, many, small), amount = CURRENCIES[match[1]], match[2]
    sign = "minus " if word[0] == "-" else ""
    whole, _, cents = amount.partition(".")
    if magnitude:
        return f"{sign}{digits_or_number(amount)} {magnitude} {many}"
    if len(cents) == 2 and small and whole in ("", "0"):
        return f"{sign}{cardinal(cents)} {small}"
    if len(cents) == 2 and small:
        dollars = f"{digits_or_number(whole)} {one if whole == '1' else many}"
        return sign + dollars + (f" and {cardinal(cents)} {small}" if cents != "00" else "")
    return f"{sign}{digits_or_number(amount)} {one if amount == '1' else many}"
