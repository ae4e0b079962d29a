"""A reader of the GBNF that we write: makes random texts of a grammar."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

SYMBOL = re.compile(r'"((?:[^"\\]|\\.)*)"|\[((?:[^\]\\]|\\.)*)\]|(r\d+)')
CHARACTER = re.compile(r"\\U([0-9A-F]{8})|\\(.)|(.)", re.DOTALL)
SHORTEST_AFTER = 400
"""Symbols after which the shortest way to the end is taken."""


Symbol = str | list[tuple[int, int]]


@dataclass(frozen=True)
class Reader:
    """The rules of a grammar: alternatives of symbols, which are texts, ranges of code points, or names."""

    rules: dict[str, list[list[Symbol]]]
    size: dict[str, int]
    """The least number of symbols of each rule."""

    def text(self, seed: int) -> str:
        """Return a random text of the grammar."""
        chance = random.Random(seed)
        left: list[Symbol] = ["root"]
        made: list[str] = []
        steps = 0
        while left:
            symbol = left.pop()
            if isinstance(symbol, list):
                low, high = chance.choice(symbol)
                made.append(chr(chance.randint(low, min(high, low + 300) if chance.random() < 0.9 else high)))
            elif symbol in self.rules:
                steps += 1
                options = self.rules[symbol]
                if steps > SHORTEST_AFTER:
                    options = [min(options, key=self._size)]
                left += reversed(chance.choice(options))
            else:
                made.append(symbol[1:])
        return "".join(made)

    def _size(self, symbols: list[Symbol]) -> int:
        return sum(self.size[one] if isinstance(one, str) and one in self.size else 1 for one in symbols)


def reader(grammar: str) -> Reader:
    rules: dict[str, list[list[Symbol]]] = {}
    for line in grammar.splitlines():
        name, _, body = line.partition(" ::= ")
        rules[name] = _alternatives(body)
    size: dict[str, int] = {}
    changed = True
    while changed:
        changed = False
        for name, options in rules.items():
            sizes = [
                sum(size[one] if isinstance(one, str) and one in rules else 1 for one in option)
                for option in options
                if all(not isinstance(one, str) or one not in rules or one in size for one in option)
            ]
            if sizes and min(sizes) + 1 < size.get(name, 1 << 60):
                size[name] = min(sizes) + 1
                changed = True
    assert size.keys() == rules.keys(), "each rule has a finite text"
    return Reader(rules, size)


def matches(grammar: str, text: str) -> bool:
    """Whether a text belongs to a grammar without left recursion."""
    rules = reader(grammar).rules
    ends: set[int] = set()
    left: list[tuple[int, tuple[Symbol, ...]]] = [(0, ("root",))]
    while left:
        at, (*symbols,) = left.pop()
        if not symbols:
            ends.add(at)
            continue
        first, rest = symbols[0], tuple(symbols[1:])
        if isinstance(first, str) and first in rules:
            left += [(at, (*option, *rest)) for option in rules[first]]
        elif isinstance(first, str):
            left += [(at + len(first) - 1, rest)] if text.startswith(first[1:], at) else []
        elif at < len(text) and any(low <= ord(text[at]) <= high for low, high in first):
            left.append((at + 1, rest))
    return len(text) in ends


def _alternatives(body: str) -> list[list[Symbol]]:
    found: list[list[Symbol]] = [[]]
    at = 0
    while at < len(body):
        if body[at] in " |":
            found += [[]] if body[at] == "|" else []
            at += 1
            continue
        symbol = SYMBOL.match(body, at)
        assert symbol is not None, body[at : at + 80]
        at = symbol.end()
        if symbol[3] is not None:
            found[-1].append(symbol[3])
        elif symbol[2] is not None:
            found[-1].append(_ranges(symbol[2]))
        elif symbol[1]:
            found[-1].append("'" + "".join(map(chr, _points(symbol[1]))))
    return found


def _points(text: str) -> list[int]:
    return [int(code, 16) if code else ord(escaped or plain) for code, escaped, plain in CHARACTER.findall(text)]


def _ranges(text: str) -> list[tuple[int, int]]:
    members = [
        (int(code, 16) if code else ord(escaped or plain), plain == "-")
        for code, escaped, plain in CHARACTER.findall(text)
    ]
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(members):
        if at + 2 < len(members) and members[at + 1][1]:
            found.append((members[at][0], members[at + 2][0]))
            at += 3
        else:
            found.append((members[at][0], members[at][0]))
            at += 1
    return found
