"""Texts as language models write them, and the words that a voice must say."""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from pathlib import Path

import pytest

from engine.english.lexicon import LETTER_NAMES
from engine.english.speller import Speller
from engine.worker.llm.spoken_text import SpokenText

CASES = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("spoken_english.tsv").read_text().splitlines()
    if not line.startswith("# kind")
]
"""Kind, text, and the words that were expected before the code was written."""


def said(text: str) -> str:
    """Return the words that the voice receives for a model's answer, without punctuation."""
    spoken = SpokenText()
    speller = Speller()
    pieces = [speller.feed(piece.text, piece.start).letters for piece in [*spoken.feed(text), *spoken.flush()]]
    letters = "".join(pieces) + speller.flush().letters
    return " ".join(re.findall(r"[\w']+", letters))


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("The meeting is at 10:30 AM.", ["ten thirty ay em"], ["am"]),
        ("We close at 12 AM.", ["twelve ay em"], ["am"]),
        ("Open 9 AM to 5 PM.", ["nine ay em", "five pee em"], ["am"]),
        ("I AM VERY HAPPY.", ["i am"], ["ay em"]),
        ("between 3.5-4.5 GB", ["three point five", "four point five"], []),
        ("a dose of .5 mg", ["point five"], []),
        ("It weighs 6.02e23 grams.", ["six point zero two"], []),
        ("open 7.5–8.5 hours", ["seven point five", "eight point five"], []),
        ("Write to me@example.com.", ["me at example dot com"], []),
        ("Write to first.last@example.com.", ["first dot last at example dot com"], []),
        ("Write to help@mail.example.co.uk.", ["help at mail dot example dot co dot you kay"], []),
        ("It was World War II.", ["war two"], ["eye"]),
        ("See Chapter IV.", ["chapter four"], ["eye", "vee"]),
        ("I saw it.", ["i saw it"], []),
        ("Don&#39;t worry about Q&amp;A.", ["don't worry", "cue and ay"], ["thirty", "amp"]),
        ("If 5 &lt; 6&nbsp;km, <b>go</b>.", ["five is less than six kilometers"], ["ell", "en bee", "bee"]),
        ("Add \\(\\frac{1}{2}\\) of it.", ["one"], ["twelve"]),
        ("It is $\\frac{7}{10}$.", ["seven"], ["hundred"]),
        ("Take $$\\frac{3}{4}$$ now.", ["three"], ["thirty four"]),
    ],
)
def test_a_text_is_said_as_people_say_it(text: str, wanted: list[str], unwanted: list[str]) -> None:
    words = f" {said(text)} "
    assert [one for one in wanted if f" {one} " not in words] == []
    assert [one for one in unwanted if f" {one} " in words] == []


@pytest.mark.parametrize("number", ["(415) 555-2671", "415.555.2671", "+1 (415) 555-2671", "321 555-5049"])
def test_a_telephone_number_is_said_digit_by_digit(number: str) -> None:
    words = said(f"Call {number} now.")
    assert "five five five" in words
    assert not {"hundred", "thousand", "to"} & set(words.split())


def test_most_sentences_of_each_kind_are_said_as_expected() -> None:
    """The target is 97 %: those that are said otherwise are listed here, so that a change of any shows."""
    wrong = defaultdict[str, list[str]](list)
    for kind, text, spoken in CASES:
        if said(text) != spoken:
            wrong[kind].append(f"{text!r}: {said(text)!r}")
    assert sum(map(len, wrong.values())) <= 0.03 * len(CASES), dict(wrong)
    assert dict(wrong) == {}


def test_what_somebody_expected_who_had_not_seen_the_code_is_said() -> None:
    lines = Path(__file__).with_name("spoken_english_blind.tsv").read_text().splitlines()[1:]
    wrong: list[str] = []
    for _, text, expected in (line.split("\t") for line in lines):
        if folded(said(text)) not in {folded(one) for one in expected.split("|")}:
            wrong.append(f"{text!r}: {said(text)!r}")
    assert len(wrong) <= 0.03 * len(lines), wrong


def folded(words: str) -> str:
    """Return words without blanks, and with letters instead of their names: ``a m``, ``am`` and ``ay em`` are equal."""
    names: dict[str, str] = {name: letter for letter, name in LETTER_NAMES.items()}
    found: list[str] = re.findall(r"[a-z0-9]+", words.lower().replace("'", "").replace("é", "e"))
    return "".join(names.get(word, word) for word in found)


def test_spelling_delays_a_clause_by_less_than_two_milliseconds() -> None:
    delays_ms: list[float] = []
    for _, text, _ in CASES:
        start_s = time.thread_time()
        said(text)
        delays_ms.append((time.thread_time() - start_s) * 1e3)
    assert statistics.quantiles(delays_ms, n=20)[-1] < 2.0
