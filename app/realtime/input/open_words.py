"""Words that never end a sentence (articles, prepositions, conjunctions), by language.

Left out are words that also end sentences: pronouns ("ich nehme den"), verbs ("para"), particles ("ruf mich an").
"""

from __future__ import annotations

from collections.abc import Sequence


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEVER_END = {
    "de": _words("des im zum zur vom und oder aber weil dass"),
    "en": _words("and or but if than the a an my your our their + * / × ÷"),
    "es": _words("el la los las un y e o u pero a al de del con en por sin que su sus porque"),
    "fr": _words("le la les des du de au aux et ou mais que mon ma mes ta tes sa ses notre votre dans par chez je"),
    "it": _words(
        "il lo i gli un a di da in con per tra fra e ed o ma che se al allo alla ai agli alle del dello della dei degli"
        " delle dal dallo dalla dagli dalle nel nello nella negli nelle sul sullo sulla sui sugli sulle"
    ),
    "nl": _words("de en maar omdat mijn"),
    "pt": _words("o a os as e ou mas de do da dos das em no na ao aos às pelo pela pelos pelas com"),
    "ru": _words("и а но или в с к у о об от до из для без при под над через не если чтобы"),
}


def only_language(languages: Sequence[str]) -> str:
    """Return the primary language that the user may speak, or "" if there are several. ``languages`` are BCP 47."""
    known = {language.split("-")[0].lower() for language in languages}
    return known.pop() if len(known) == 1 else ""
