"""Filler words ("um", "äh", "euh") at the end of a transcript: the speaker will go on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.realtime.input.open_words import only_language


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILLERS = _words(
    "um uh uhm uhh erm ehm hm hmm mm mmm mhm ah ahm äh ähm ääh öh öhm euh euhm heu э ээ эээ эм мм ммм ээм 음"
)
"""Fillers in every language. None is a word that often ends a sentence in another."""

_FILLERS_OF = {
    "en": frozenset({"er"}),
    "es": frozenset({"eh", "em", "este"}),
    "fr": frozenset({"hum", "ben"}),
    "it": frozenset({"eh", "cioè"}),
    "ko": frozenset({"그"}),
    "nl": frozenset({"eh"}),
    "pl": frozenset({"yyy", "yy", "eee"}),
    "pt": frozenset({"hum", "ahn", "hã"}),
    "ru": frozenset({"ну"}),
    "sv": frozenset({"eh"}),
}
"""Fillers that are words of another language. They count only where the language is known."""

_UNSPACED = ("えっと", "えーと", "ええと", "あのー", "うーん", "呃")
"""Fillers of languages without spaces between words."""


def ends_in_filler(text: str, languages: Sequence[str] = ("en",)) -> bool:
    """Return whether the last word of a transcript in lower case is a filler.

    Args:
      text: The transcript.
      languages: The languages that the ASR model may have heard, as BCP 47.
    """
    if text.endswith(("?", "？")):
        return False  # "…, eh?" and "Wo ist er?" end a turn
    words = re.findall(r"[^\W_]+", text)
    if not words:
        return False
    only = only_language(languages)
    return words[-1] in _FILLERS or words[-1] in _FILLERS_OF.get(only, ()) or words[-1].endswith(_UNSPACED)
