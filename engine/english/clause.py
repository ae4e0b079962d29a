"""Converts a clause of written English to the words of a voice's lexicon, spelling out numbers and abbreviations."""

from __future__ import annotations

from engine.english.speller import Speller

_CLOSERS = "\"')]}”’»*_`~ \n\t"


def in_words(text: str) -> str:
    """Return a clause in spoken words, in lowercase letters. Its final punctuation is kept."""
    speller = Speller()
    letters = speller.feed(text).letters + speller.flush().letters
    end = text.rstrip(_CLOSERS)[-1:]
    spoken = " ".join(letters.split()).rstrip(" .,?")
    if not spoken:
        return ""
    return spoken + (end if end in (".", "!", "?", ",") else "." if end in ("…",) else "," if end in (";", ":") else "")
