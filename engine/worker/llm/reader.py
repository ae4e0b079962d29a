"""Character reader with look-ahead for streaming text, used by rules that are generators.

A rule gets the next character by ``yield from reader.next()``; the owner of the text sends it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple


class Sign(NamedTuple):
    """A character with its index and the preceding character; "" stands for the end and for the beginning."""

    char: str
    at: int
    before: str = ""


Scan = Generator[None, Sign, None]


class TextReader:
    """The reader. Characters that were read and put back are read again first."""

    def __init__(self) -> None:
        self._back: list[Sign] = []

    def next(self) -> Generator[None, Sign, Sign]:
        """Return the next character. Not to be called after the end."""
        return self._back.pop() if self._back else (yield)

    def peek(self) -> Generator[None, Sign, str]:
        """Return the next character without consuming it."""
        sign = yield from self.next()
        self._back.append(sign)
        return sign.char

    def unread(self, *signs: Sign) -> None:
        """Put characters back, in the order in which they were read."""
        self._back += reversed(signs)

    def run(self, first: Sign, most: int) -> Generator[None, Sign, list[Sign]]:
        """Return a character that was read, with its repetitions."""
        run = [first]
        while len(run) < most and (yield from self.peek()) == first.char:
            run.append((yield from self.next()))
        return run

    def word(self, held: list[Sign], words: tuple[str, ...]) -> Generator[None, Sign, bool]:
        """Read on after ``held`` while it may become one of the words. Returns whether it is one."""
        while (text := text_of(held).lower()) not in words:
            if not held[-1].char or not any(word.startswith(text) for word in words):
                return False
            held.append((yield from self.next()))
        return True


def text_of(signs: list[Sign]) -> str:
    return "".join(sign.char for sign in signs)
