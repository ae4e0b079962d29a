"""The user's words in one item as they become known, and the part of them that no longer changes.

Independent of wire formats and the engine; never reads the clock.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


@dataclass(slots=True)
class Caption:
    """The transcripts of one item, interim ones and the last."""

    words: str = ""
    """The latest interim transcript."""
    sent: str = ""
    """All that ``grow`` and ``finish`` have returned."""

    def grow(self, words: str) -> str:
        """Take a newer interim transcript, and return the words that became stable.

        Words are stable once two transcripts in succession begin with them. Returned words are never retracted: if
        a transcript contradicts it, nothing more is returned until one continues it again.
        """
        same = zip(self.words, words, strict=False)
        agreed = next((at for at, (a, b) in enumerate(same) if a != b), min(len(self.words), len(words)))
        stable = _whole_words(words, agreed)
        self.words = words
        return self._next(stable)

    def finish(self, transcript: str) -> str:
        """Return the rest of the final transcript, or "" if it contradicts the words that were returned."""
        return self._next(transcript)

    def _next(self, text: str) -> str:
        if not text.startswith(self.sent):
            return ""
        more = text[len(self.sent) :]
        self.sent = text
        return more


def _whole_words(text: str, end: int) -> str:
    """Return the words of ``text`` that end before ``end`` or there."""
    while 0 < end < len(text) and _is_within_word(text, end):
        end -= 1
    return text[:end].rstrip()


def _is_within_word(text: str, at: int) -> bool:
    """Return whether a word or number goes on at ``at``. Ideographs and kana are words by themselves."""
    before, after, next_after = text[at - 1], text[at], text[at + 1 : at + 2]
    goes_on = after.isalnum() or (next_after.isalnum() and not after.isspace())  # 1.5, I'm
    return goes_on and not before.isspace() and not _is_wide(before) and not _is_wide(after)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"
