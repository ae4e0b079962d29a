"""Converts parts of words to spoken words: words, acronyms letter by letter, signs, addresses, and other alphabets."""

from __future__ import annotations

import re
import unicodedata

from engine.english.lexicon import ALPHABETS, ALWAYS_SPELLED, LETTER_NAMES, LIGATURES, SIGNS, WORDS_IN_CAPITALS
from engine.english.numbers import digits_or_number, year

INNER_PAUSES = frozenset("—–;:")


def spell_part(part: str) -> str:
    """Return the spoken form of a run of letters, digits and apostrophes, or of one sign."""
    if part in INNER_PAUSES:
        return ","
    if part in SIGNS and part != "-":
        return SIGNS[part]
    if len(part) == 1 and part.lower() in LETTER_NAMES:
        return LETTER_NAMES[part.lower()]
    pieces = re.findall(r"\d+(?:\.\d+)?|[^\W\d]+(?:'[^\W\d]+)*", part)
    mixed = len(pieces) > 1
    return " ".join(digits_or_number(piece) if piece[0].isdecimal() else _letters(piece, mixed) for piece in pieces)


def _letters(word: str, mixed: bool = False) -> str:
    """Return the spoken form of a run of letters: the word itself, or the letter names of an acronym."""
    plain = _latin(word)
    base, plural = (plain[:-1], "s") if re.fullmatch(r"[A-Z]{2,}s", plain) else (plain, "")
    vowels = re.search(r"[aeiouy]", base.lower())
    capital = base.isupper() and len(base) > 1 and base not in WORDS_IN_CAPITALS
    short = len(base) <= 3 or not vowels
    if (
        base.lower() in ALWAYS_SPELLED
        or (capital and short)
        or (mixed and len(base) <= 2 and "'" not in base)
        or not vowels
    ):
        return " ".join(LETTER_NAMES.get(letter, "") for letter in base.lower()) + ("s" if plural else "")
    return re.sub(r"[^a-z']", "", plain.lower()).strip("'")


def _latin(word: str) -> str:
    """Return the letters of the English alphabet in a word, without accents. Letters of other alphabets are dropped."""
    bare = unicodedata.normalize("NFKD", word.translate(LIGATURES))
    return "".join(letter for letter in bare if letter == "'" or (letter.isascii() and letter.isalpha()))


def foreign(word: str) -> str:
    """Return the name of the script ("greek") if no letter of a word can be read; otherwise ""."""
    letters = [character for character in word if character.isalpha()]
    if not letters or _latin(word) or any(character.isdecimal() for character in word):
        return ""
    name = unicodedata.name(letters[0], "another script").lower().split()[0]
    return ALPHABETS.get(name, name if name.isalpha() and name.isascii() else "another script")


def address(written: str) -> str:
    """Return the spoken form of a web or mail address, such as www.example.org/help, without scheme and query."""
    bare = re.sub(r"^https?://|[?#].*$|/$", "", written, flags=re.IGNORECASE)
    bare = re.sub(r"^www\.", "", bare, flags=re.IGNORECASE)
    names = {".": " dot ", "/": " slash ", "@": " at ", "-": " dash ", "_": " underscore ", ":": " colon "}
    parts = re.split(r"([^\w']|_)", bare.lower())
    host_end = max((i for i, part in enumerate(parts) if part == "." and "/" not in parts[:i]), default=-1) + 1
    return " ".join(
        _country(part) if i == host_end else names.get(part) or spell_part(part) for i, part in enumerate(parts)
    )


def _country(domain: str) -> str:
    """Return the spoken end of a host name: a two-letter country code letter by letter, except those read as a word."""
    if len(domain) == 2 and domain.isalpha() and domain.isascii() and domain not in ("me", "co"):
        return " ".join(LETTER_NAMES[letter] for letter in domain)
    return spell_part(domain)


def hashtag(tag: str) -> str:
    """Return the spoken words of a hashtag: OpenAI -> open ay eye."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", tag)
    return " ".join(year(word) if re.fullmatch(r"(?:19|20)\d\d", word) else spell_part(word) for word in words)
