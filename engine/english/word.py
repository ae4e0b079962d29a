"""Converts one written word with its punctuation to spoken words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from engine.english.fractions import written_out
from engine.english.letters import address, foreign, hashtag, spell_part
from engine.english.lexicon import ABBREVIATIONS, LETTER_NAMES, LONE_SIGNS
from engine.english.roman import numeral
from engine.english.shapes import SHAPES

CLOSING = "\"'“”‘’»*_`~|}>-–—…!?.,;:)]"
PAUSES = {"!": ".", "…": ".", ".": ".", "?": "?", ",": ",", ";": ",", ":": ",", ")": ",", "]": ",", "—": ",", "–": ","}
_OPENING = "([{<\"'“”‘’«»*_`#~|-–—•·"
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?[\w.+-]+(?:@[\w.-]+)?(?:\.[a-z]{2,})(?:[/:?#]\S*)?", re.IGNORECASE)
_TOP_LEVEL = re.compile(r"\.(?:com|org|net|edu|gov|io|ai|dev|de|uk|co|info|eu|fr|app|me|tv)\b", re.IGNORECASE)


_TIME = re.compile(r"(?:.*[-–])?(?:[01]?\d|2[0-4])(?::\d\d)?")
_ABOUT = {"±": "plus or minus ", "~": "about ", "≈": "about "}


@lru_cache(4096)  # words come again and again, and a burst of first sounds waits for each of them
def speak(word: str, before: str = "") -> str:
    """Return the spoken form of a written word with its punctuation. ``before`` is the previous word, as written."""
    if (apart := written_out(word)) != word:
        parts = apart.split()
        return " ".join(speak(part, [before, *parts][i]) for i, part in enumerate(parts))
    word = unicodedata.normalize("NFKC", word).replace("’", "'").replace("‘", "'").replace("⁄", "/")
    lowered = word.strip(_OPENING).rstrip("\"'”)]},;:!?").lower()
    if lowered in ABBREVIATIONS:
        return ABBREVIATIONS[lowered] + pause(word[len(word.rstrip("\"'”)]},;:!?")) :])
    if word in LONE_SIGNS:
        return LONE_SIGNS[word] if before else ""
    core = word.rstrip(CLOSING)
    tail = pause(word[len(core) :])
    if re.match(r"[-–—−](?=[\d.$€£])", core):
        return "minus " + _core(core[1:], before, tail) + tail
    if re.match(r"[±~≈](?=[\d.])", core):
        return _ABOUT[core[0]] + _core(core[1:], before, tail) + tail
    if tag := re.fullmatch(r"[(\"'“*_]*#(\w+)", core):
        return (f"number {_core(tag[1], before, tail)}" if tag[1].isdecimal() else f"hashtag {hashtag(tag[1])}") + tail
    return _core(core.lstrip(_OPENING), before, tail) + tail


def pause(closing: str) -> str:
    """Return the strongest pause in the punctuation after a word: . or ? before a comma; "" if there is none."""
    pauses = [PAUSES[sign] for sign in closing if sign in PAUSES]
    return next((pause for pause in ("?", ".", ",") if pause in pauses), "")


def _core(core: str, before: str, tail: str) -> str:
    """Return the spoken form of a word without the punctuation around it."""
    if alphabet := foreign(core):
        return "" if foreign(before) == alphabet else f"something in {alphabet}"
    if core.lower() == "am" and _TIME.fullmatch(before):
        return "ay em"
    if said := numeral(core, before):
        return said
    for pattern, say in SHAPES:
        if (match := pattern.fullmatch(core)) and (said := say(match, before)):
            return said
    if len(core) == 1 and core.isalpha() and core.isascii():
        return _single_letter(core, before, tail)
    if _ADDRESS.fullmatch(core) and (_TOP_LEVEL.search(core) or "@" in core or "://" in core):
        return address(core)
    return " ".join(spell_part(part) for part in re.split(r"([^\w']|_)", core))


def _single_letter(letter: str, before: str, tail: str) -> str:
    """Return the name of a letter. "a" and "I" are words, except in a row of letters, or "a" before a comma."""
    in_row = bool(re.fullmatch(r"[A-Za-z][,;:]?", before)) and before.lower() not in ("a", "i")
    is_word = letter in "aI" and not in_row and not (tail == "," and letter == "a")
    return letter.lower() if is_word else LETTER_NAMES[letter.lower()]
