"""Sets of characters, as sorted and disjoint ranges of code points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

Range = tuple[int, int]
"""First and last code point."""
LAST = 0x10FFFF


@dataclass(frozen=True)
class Characters:
    """A set of characters. ``of`` makes one of any ranges."""

    ranges: tuple[Range, ...] = ()

    @staticmethod
    def of(ranges: Iterable[Range]) -> Characters:
        """Return the union of ranges, which may overlap."""
        merged: list[Range] = []
        for first, last in sorted(ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return Characters(tuple(merged))

    @staticmethod
    def in_text(text: str) -> Characters:
        return Characters.of((ord(one), ord(one)) for one in text)

    def __or__(self, other: Characters) -> Characters:
        return Characters.of((*self.ranges, *other.ranges))

    def __and__(self, other: Characters) -> Characters:
        found: list[Range] = []
        mine, theirs = list(reversed(self.ranges)), list(reversed(other.ranges))
        while mine and theirs:
            first, last = max(mine[-1][0], theirs[-1][0]), min(mine[-1][1], theirs[-1][1])
            if first <= last:
                found.append((first, last))
            (mine if mine[-1][1] < theirs[-1][1] else theirs).pop()
        return Characters(tuple(found))

    def __invert__(self) -> Characters:
        edges = [-1, *(edge for first, last in self.ranges for edge in (first, last)), LAST + 1]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        return Characters(tuple((before + 1, after - 1) for before, after in gaps if before + 1 <= after - 1))

    def __sub__(self, other: Characters) -> Characters:
        return self & ~other

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, character: str) -> bool:
        return any(first <= ord(character) <= last for first, last in self.ranges)

    @cached_property
    def gbnf(self) -> str:
        """Return the set as a character class of GBNF."""
        written = (_code(first) if first == last else f"{_code(first)}-{_code(last)}" for first, last in self.ranges)
        return f"[{''.join(written)}]"


def _code(point: int) -> str:
    return chr(point) if point < 0x80 and chr(point).isalnum() else f"\\U{point:08X}"


ESCAPES = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
"""Characters that a JSON string contains only as an escape, and the letter of each escape."""
PLAIN = Characters.of([(0x20, 0xD7FF), (0xE000, LAST)]) - Characters.in_text('"\\')
"""Characters that a JSON string contains as they are."""
ALL = PLAIN | Characters.in_text("".join(ESCAPES))
"""Characters of strings. Other control characters and surrogates are never written."""
