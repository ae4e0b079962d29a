"""Numbers, dates and times in German, Spanish, French and Italian, as a voice must say them."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

import pytest

from engine.worker.tts.number_words import number_words

pytest.importorskip("unicode_rbnf")

CASES = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("spoken_languages.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
"""Language, kind, text, and the words that were expected before the code was written."""
KNOWN_WRONG = {"es": {"Viven aquí 3.200.000 personas."}}
"""CLDR's rules do not give the hundreds of thousands the gender of the noun."""


def said(language: str, text: str) -> str:
    spell = number_words(language)
    assert spell is not None
    return " ".join(re.findall(r"[\w']+", spell(text).lower()))


@pytest.mark.parametrize("language", ["de", "es", "fr", "it"])
def test_at_least_95_percent_of_the_sentences_are_said_as_expected(language: str) -> None:
    cases = [(text, words) for code, _, text, words in CASES if code == language]
    wrong = {text for text, words in cases if said(language, text) != words}
    assert wrong == KNOWN_WRONG.get(language, set())
    assert len(wrong) <= 0.05 * len(cases)


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        ("de", "Ich habe 3. Das reicht.", "ich habe drei das reicht"),
        ("de", "Das sind 1500 Meter.", "das sind eintausendfünfhundert meter"),
        ("de", "Die MP3 hat Version 1.2.3.", "die mp3 hat version 1 2 3"),
        ("es", "Espera 1 hora y 31 minutos.", "espera una hora y treinta y un minutos"),
        ("fr", "Il est 0h05.", "il est zéro heure cinq"),
        ("it", "Fuori ci sono 20 °C.", "fuori ci sono venti c"),
        ("it", "1 maggio", "primo maggio"),
        ("de", f"{10**19},5", f"eins{' null' * 19} komma fünf"),
        ("de-AT", "um 25:70 Uhr", "um 25 70 uhr"),
        ("fr", "rien à dire", "rien à dire"),
    ],
)
def test_other_texts_are_not_misread(language: str, text: str, spoken: str) -> None:
    assert said(language, text) == spoken


def test_a_language_without_rules_keeps_its_digits() -> None:
    assert number_words("nl") is None
    assert number_words("") is None


def test_spelling_delays_a_clause_by_less_than_two_milliseconds() -> None:
    spell = number_words("de")
    assert spell is not None
    spell("1")
    taken: list[float] = []
    for _, _, text, _ in CASES:
        begun = time.process_time()
        spell(text)
        taken.append(time.process_time() - begun)
    assert statistics.quantiles(taken, n=20)[-1] < 0.002
