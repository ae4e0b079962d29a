"""Telephone numbers that are divided by spaces: +1 (415) 555-2671, 020 7946 0958."""

from __future__ import annotations

import re

from engine.english.numbers import one_by_one

WAITS = r"\(?\d{3}\)?|0\d{2,4}|\+\d{1,3}"
"""Words that may begin a telephone number. The next word decides."""
_GROUP = re.compile(r"\(?\d[\d().-]*")
_LOCAL = re.compile(r"\d{3}[-.]?\d{4}|\d{3}")


def begins(word: str, after: str) -> bool:
    """Return whether a word begins a telephone number. ``after`` is the next word, without closing signs."""
    if not re.fullmatch(WAITS, word):
        return False
    if word[0] == "+":
        return bool(re.fullmatch(r"\(?\d{2,}[\d().-]*", after))
    if word[0] == "0":
        return bool(re.fullmatch(r"\d{3,8}", after))
    return bool(_LOCAL.fullmatch(after)) and (word[0] == "(" or not word.endswith("00"))


def goes_on(word: str) -> bool:
    """Return whether a word is the next group of a telephone number."""
    return bool(_GROUP.fullmatch(word))


def dialed(word: str) -> str:
    """Spell each digit, with a pause between groups."""
    groups = ", ".join(one_by_one(group) for group in re.findall(r"\d+", word))
    return f"plus {groups}" if word[0] == "+" else groups
