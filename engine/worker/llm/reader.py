"""A reader of a text that still arrives, character by character, with a look at what follows: for rules that are
generators.

A rule asks for the next character by ``yield from reader.next()``; the owner of the text sends it. Knows no rule.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple


class Sign(NamedTuple):
    """A character, its index, and the character before it; "" is the text's end, and what is before its beginning."""

    char: str
    at: int
    before: str = ""


Scan = Generator[None, Sign, None]


class TextReader:
    """The reader. Characters that have been looked at and given back are read again first."""

    def __init__(self) -> None:
        self._back: list[Sign] = []

    def next(self) -> Generator[None, Sign, Sign]:
        """The next character; behind the end there is none."""
        return self._back.pop() if self._back else (yield)

    def peek(self) -> Generator[None, Sign, str]:
        """The character that is next, and stays so."""
        sign = yield from self.next()
        self._back.append(sign)
        return sign.char

    def unread(self, *signs: Sign) -> None:
        """Give back what was read, in the order in which it was read."""
        self._back += reversed(signs)

    def run(self, first: Sign, most: int) -> Generator[None, Sign, list[Sign]]:
        """A character that was read, and those that repeat it."""
        run = [first]
        while len(run) < most and (yield from self.peek()) == first.char:
            run.append((yield from self.next()))
        return run

    def word(self, held: list[Sign], words: tuple[str, ...]) -> Generator[None, Sign, bool]:
        """Read on behind ``held`` while it may become one of these words; whether it is one."""
        while (text := text_of(held).lower()) not in words:
            if not held[-1].char or not any(word.startswith(text) for word in words):
                return False
            held.append((yield from self.next()))
        return True


def text_of(signs: list[Sign]) -> str:
    return "".join(sign.char for sign in signs)
