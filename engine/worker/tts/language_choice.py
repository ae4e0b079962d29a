"""Chooses one of several voices by the language of the turn and the script of the answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from engine.core import Voice
from engine.worker.tts.voices import can_say

BY_LANGUAGE = Voice("auto", "Automatic, the voice of the turn's language")
"""The voice that stands for all others: the language of each turn chooses one of them."""

SCRIPTS = {
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "GREEK": "el",
    "HANGUL": "ko",
    "HEBREW": "he",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "THAI": "th",
    "CJK": "zh",
}
"""The most likely language of a text, by the first word of its letters' Unicode names.

The first entry that the text contains counts: Japanese has Chinese characters, too.
"""


def chosen_voice(voices: Sequence[Voice], language: str, text: str) -> Voice:
    """Return the voice that should speak an answer.

    Args:
        voices: The voices, the default one first.
        language: The language of the turn, as BCP 47; "" if unknown.
        text: The beginning of the answer.

    Returns:
        The first voice of the turn's language, or else of the text's script, that can read the text. If no voice has
            that language: the first one that can read the text, or else the first one.
    """
    able = [voice for voice in voices if can_say(text, [voice.language] if voice.language else ())] or voices
    for wanted in (language, script_language(text)):
        if (found := _speaking(able, wanted)) is not None:
            return found
    return able[0]


def script_language(text: str) -> str:
    """Return the language that a text's script stands for; "" for Latin and other scripts of many languages."""
    names = {unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()}
    return next((language for script, language in SCRIPTS.items() if script in names), "")


def _speaking(voices: Sequence[Voice], language: str) -> Voice | None:
    """Return the first voice of exactly this language, or else of the same base language."""
    wanted = language.lower()
    for matches in (str.lower, _base):
        fitting = (voice for voice in voices if voice.language and matches(voice.language) == matches(wanted))
        if (found := next(fitting, None)) is not None:
            return found
    return None


def _base(language: str) -> str:
    return language.partition("-")[0].lower()
