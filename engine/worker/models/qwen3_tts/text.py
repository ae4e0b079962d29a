"""A growing text as tokens: each comes as soon as nothing that may still follow can change it.

Joined, the tokens are those of the whole text, however it was cut. Marks of the model that the text imitates are
text. Knows no stage.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.worker.text.tokenizer import plain_of, read_tokenizer

LONGEST = 1024
"""Characters that are held back at most: a row of more without a place to cut is cut where it is."""


@dataclass(frozen=True, slots=True)
class TtsTextToken:
    """The next token to be spoken, behind which ``text_end`` characters of the answer are in."""

    id: int
    text_end: int


class TextIds:
    """A checkpoint's tokenizer for text alone: no mark of the model becomes a token of its own."""

    def __init__(self, folder: Path) -> None:
        self._plain = plain_of(read_tokenizer(folder))

    def __call__(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def encoded(self, text: str) -> Any:
        """The ids of a text with the characters that each is made of, and the word it is in."""
        return self._plain.encode(text, add_special_tokens=False)


class StreamingText:
    """Feed the text in any pieces, flush once at the end.

    A word is held back until the next one begins, since its letters are tokens together; so is what stands before the
    first letter or digit, since of marks alone nothing is said. Blanks at the beginning are left out.
    """

    def __init__(self, ids: TextIds) -> None:
        self._ids = ids
        self._text = ""
        self._sources = list[int]()
        self._lettered = False

    def feed(self, text: str, start: int) -> Iterator[TtsTextToken]:
        """The tokens that are settled by now; the text's first character is the answer's ``start``-th."""
        kept = text if self._text or self._lettered else text.lstrip()
        start += len(text) - len(kept)
        self._text += "".join(" " if one == "\0" or "\ud800" <= one <= "\udfff" else one for one in kept)
        self._sources += range(start, start + len(kept))
        self._lettered = self._lettered or any(map(str.isalnum, kept))
        if self._lettered:
            yield from self._settled()

    def flush(self) -> Iterator[TtsTextToken]:
        """Return the rest."""
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
        """Find where the part ends that nothing can change: before the last word if a blank parts it from the one
        before, else before the last two; between a letter and its marks there is no such place."""
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
        ends = [end for _, end in found.offsets[:-1]] + [count]  # the last mark over a letter is no token's
        for id, end in zip(found.ids, ends, strict=True):
            yield TtsTextToken(id, sources[max(0, end - 1)] + 1)
