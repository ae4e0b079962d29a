"""Regular expressions of JSON schemas (ECMA 262), parsed to a tree.

Supported is what describes a regular language. Where dialects disagree, such as on the digits of other scripts, a class
contains only characters that are in it, or outside of it, in all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.worker.llm.grammar.characters import ALL, Characters

MOST_DEPTH = 32
"""Maximum nesting of groups."""


class BadPattern(Exception):
    """A pattern that is invalid or not supported. The message is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``least`` to ``most`` times a part; None: without a limit."""

    part: Node
    least: int
    most: int | None


Node = Characters | Sequence | Choice | Repeat

_DIGITS = Characters.of([(0x30, 0x39)])
_WORD = _DIGITS | Characters.of([(0x41, 0x5A), (0x61, 0x7A), (0x5F, 0x5F)])
_SPACE = Characters.in_text("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | Characters.of(
    [(0x2000, 0x200A)]
)
_ODD_SPACE = Characters.of([(0x1C, 0x1F), (0x85, 0x85)])
"""White space in some dialects only."""
_ASCII = Characters.of([(0, 0x7F)])
_CLASSES = {
    "d": _DIGITS,
    "D": _ASCII - _DIGITS,
    "w": _WORD,
    "W": _ASCII - _WORD,
    "s": _SPACE - Characters.in_text("\ufeff"),
    "S": ALL - _SPACE - _ODD_SPACE,
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_DOT = ALL - Characters.in_text("\n\r\u2028\u2029")
_ANYTHING = Repeat(ALL, 0, None)
_COUNT = re.compile(r"\{(\d{1,9})(?:(,)(\d{0,9}))?\}")
_NAMED = re.compile(r"\?P?<[A-Za-z_]\w*>")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")


def parsed(pattern: str) -> Node:
    """Return the tree of the strings in which a pattern is found. Raises BadPattern."""
    return _Parser(pattern).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        options = [self._anchored()]
        while self._take("|"):
            options.append(self._anchored())
        if self._at < len(self._text):
            raise BadPattern("has a ) without a (" if self._next == ")" else "has a $ before its end")
        return Choice(tuple(options))

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _anchored(self) -> Node:
        before = () if self._take("^") else (_ANYTHING,)
        inner = self._sequence()
        after = () if self._take("$") else (_ANYTHING,)
        return Sequence((*before, inner, *after))

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._next and self._next not in "|)$":
            parts.append(self._repeated())
        return Sequence(tuple(parts))

    def _repeated(self) -> Node:
        part = self._atom()
        least, most = self._quantity()
        if (least, most) == (1, 1):
            return part
        self._take("?")  # lazy: the same strings match
        if self._next and (self._next in "*+?" or _COUNT.match(self._text, self._at)):
            raise BadPattern("has two quantifiers in a row")
        return Repeat(part, least, most)

    def _quantity(self) -> tuple[int, int | None]:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(sign):
                return least, most
        found = _COUNT.match(self._text, self._at)
        if found is None:
            return 1, 1
        self._at = found.end()
        least, more, last = int(found[1]), found[2], found[3]
        most = least if not more else int(last) if last else None
        if most is not None and most < least:
            raise BadPattern(f"has the quantifier {found[0]}, whose maximum is below its minimum")
        return least, most

    def _atom(self) -> Node:
        character = self._next
        self._at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _DOT
            case "\\":
                return self._escape()
            case "^":
                raise BadPattern("has a ^ after its beginning")
            case "*" | "+" | "?":
                raise BadPattern(f"has a {character} with nothing to repeat")
            case _:
                return Characters.in_text(character)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise BadPattern(f"has more than {MOST_DEPTH} groups within each other")
        if named := _NAMED.match(self._text, self._at):
            self._at = named.end()
        elif not self._take("?:") and self._next == "?":
            raise BadPattern("has a look-around or an option, which are not supported")
        inner = self._choice()
        if not self._take(")"):
            raise BadPattern("has an anchor within a group" if self._next == "$" else "has a ( without a )")
        self._depth -= 1
        return inner

    def _escape(self, within: bool = False) -> Characters:
        if not self._next:
            raise BadPattern("ends with a backslash")
        if found := _HEX.match(self._text, self._at):
            self._at = found.end()
            point = int(found[1] or found[2] or found[3], 16)
            return Characters.of([(point, point)])
        character = self._next
        self._at += 1
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS:
            return Characters.in_text(_CONTROLS[character])
        if character == "b" and within:
            return Characters.in_text("\b")
        if character.isascii() and character.isalnum():
            raise BadPattern(f"has \\{character}, which is not supported")
        return Characters.in_text(character)

    def _class(self) -> Node:
        negated = self._take("^")
        found = Characters()
        first = True
        while first or self._next != "]":
            if not self._next:
                raise BadPattern("has a [ without a ]")
            if first and self._next == "]":
                raise BadPattern("has an empty class []")
            first = False
            found |= self._members()
        self._at += 1
        return ALL - found if negated else found

    def _members(self) -> Characters:
        """Return one member of a class, or a range of them."""
        low = self._member()
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return low
        self._at += 1
        if not self._next:
            raise BadPattern("has a [ without a ]")
        high = self._member()
        if not _is_single(low) or not _is_single(high) or low.ranges[0] > high.ranges[0]:
            raise BadPattern("has a range in a class whose ends are not two characters in order")
        return Characters.of([(low.ranges[0][0], high.ranges[0][0])])

    def _member(self) -> Characters:
        character = self._next
        self._at += 1
        return self._escape(within=True) if character == "\\" else Characters.in_text(character)


def _is_single(characters: Characters) -> bool:
    return len(characters.ranges) == 1 and characters.ranges[0][0] == characters.ranges[0][1]
