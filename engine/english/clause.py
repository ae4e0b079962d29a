"""A clause of written English as a voice's lexicon has its words: numbers, signs and abbreviations spelled out."""

from __future__ import annotations

from engine.english.speller import Speller

_CLOSERS = "\"')]}”’»*_`~ \n\t"


def in_words(text: str) -> str:
    """Return a clause as one says it, in lowercase letters; how it ends, as a sentence or within one, stays as it
    is."""
    speller = Speller()
    letters = speller.feed(text).letters + speller.flush().letters
    end = text.rstrip(_CLOSERS)[-1:]
    spoken = " ".join(letters.split()).rstrip(" .,?")
    if not spoken:
        return ""
    return spoken + (end if end in (".", "!", "?", ",") else "." if end in ("…",) else "," if end in (";", ":") else "")
