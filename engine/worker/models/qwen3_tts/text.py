"""Incremental tokenization: yields each token as soon as later text cannot change it.

The tokens equal those of the whole text, however it is cut. Special tokens written in the text are treated as text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.worker.text.tokenizer import plain_of, read_tokenizer

LONGEST = 1024
"""Maximum characters held back. Longer text without a safe place to cut is cut anyway."""


@dataclass(frozen=True, slots=True)
class TtsTextToken:
    """The next token to speak; after it, ``text_end`` characters of the answer have been taken."""

    id: int
    text_end: int


class TextIds:
    """A checkpoint's tokenizer without special tokens."""

    def __init__(self, folder: Path) -> None:
        self._plain = plain_of(read_tokenizer(folder))

    def __call__(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def encoded(self, text: str) -> Any:
        """Return the encoding of a text, with each token's character range and word."""
        return self._plain.encode(text, add_special_tokens=False)


class StreamingText:
    """Tokenizer for a growing text: feed pieces of any size, then flush once.

    A word is held back until the next one begins, because its letters are tokenized together. Text before the first
    letter or digit is held back too, because punctuation alone is not spoken. Leading spaces are dropped.
    """

    def __init__(self, ids: TextIds) -> None:
        self._ids = ids
        self._text = ""
        self._sources = list[int]()
        self._lettered = False

    def feed(self, text: str, start: int) -> Iterator[TtsTextToken]:
        """Yield the tokens that are final. ``start`` is the index of the text's first character in the answer."""
        kept = text if self._text or self._lettered else text.lstrip()
        start += len(text) - len(kept)
        self._text += "".join(" " if one == "\0" or "\ud800" <= one <= "\udfff" else one for one in kept)
        self._sources += range(start, start + len(kept))
        self._lettered = self._lettered or any(map(str.isalnum, kept))
        if self._lettered:
            yield from self._settled()

    def flush(self) -> Iterator[TtsTextToken]:
        """Yield the remaining tokens."""
        if self._lettered and self._text:
            yield from self._taken(len(self._text))

    def _settled(self) -> Iterator[TtsTextToken]:
        found = self._ids.encoded(self._text)
        starts = dict[int, int]()
        for word, (start, _) in zip(found.word_ids, found.offsets, strict=True):
            starts.setdefault(word, start)
        at = self._cut([*starts.values()])
        if at or len(self._text) > LONGEST:
            yield from self._taken(at or len(self._text))

    def _cut(self, starts: list[int]) -> int:
        """Return the end of the part that later text cannot change.

        That is before the last word if a space precedes it, otherwise before the last two. A letter and its combining
        marks are never separated.
        """
        if len(starts) < 2:
            return 0
        last, text = starts[-1], self._text
        if text[last] == " " and not text[last - 1].isspace() and not text[last:].isspace():
            return last
        return next((start for start in reversed(starts[:-1]) if not unicodedata.combining(text[start])), 0)

    def _taken(self, count: int) -> Iterator[TtsTextToken]:
        text, sources = self._text[:count], self._sources[:count]
        self._text = self._text[count:]
        self._sources = self._sources[count:]
        found = self._ids.encoded(text)
        ends = [end for _, end in found.offsets[:-1]] + [count]  # a trailing combining mark belongs to the last token
        for id, end in zip(found.ids, ends, strict=True):
            yield TtsTextToken(id, sources[max(0, end - 1)] + 1)
