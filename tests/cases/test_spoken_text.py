"""Texts as language models write them, and the words that a voice must say."""

from __future__ import annotations

import re

import pytest

from engine.english.speller import Speller
from engine.worker.llm.spoken_text import SpokenText


def said(text: str) -> str:
    """Return the words that the voice receives for a model's answer, without punctuation."""
    spoken = SpokenText()
    speller = Speller()
    pieces = [speller.feed(piece.text, piece.start).letters for piece in [*spoken.feed(text), *spoken.flush()]]
    letters = "".join(pieces) + speller.flush().letters
    return " ".join(re.findall(r"[\w']+", letters))


def wrong(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason=f"{reason}")


TIME = wrong("AM in capitals after a time is read as the word")
TELEPHONE = wrong("groups of a telephone number are read as large numbers")
DECIMAL = wrong("the decimal point is lost in ranges, bare fractions and exponents")
EMAIL = wrong("the dots of a longer e-mail address are lost")
ROMAN = wrong("Roman numerals after a name are spelled letter by letter")
ENTITY = wrong("HTML entities are read as their source text")
LATEX = wrong("the two numbers of a LaTeX fraction run together")


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        pytest.param("The meeting is at 10:30 AM.", ["ten thirty ay em"], ["am"], marks=TIME),
        pytest.param("We close at 12 AM.", ["twelve ay em"], ["am"], marks=TIME),
        pytest.param("Open 9 AM to 5 PM.", ["nine ay em", "five pee em"], ["am"], marks=TIME),
        ("I AM VERY HAPPY.", ["i am"], ["ay em"]),
        pytest.param("between 3.5-4.5 GB", ["three point five", "four point five"], [], marks=DECIMAL),
        pytest.param("a dose of .5 mg", ["point five"], [], marks=DECIMAL),
        pytest.param("It weighs 6.02e23 grams.", ["six point zero two"], [], marks=DECIMAL),
        pytest.param("open 7.5–8.5 hours", ["seven point five", "eight point five"], [], marks=DECIMAL),
        ("Write to me@example.com.", ["me at example dot com"], []),
        ("Write to first.last@example.com.", ["first dot last at example dot com"], []),
        pytest.param(
            "Write to help@mail.example.co.uk.", ["help at mail dot example dot co dot you kay"], [], marks=EMAIL
        ),
        pytest.param("It was World War II.", ["war two"], ["eye"], marks=ROMAN),
        pytest.param("See Chapter IV.", ["chapter four"], ["eye", "vee"], marks=ROMAN),
        ("I saw it.", ["i saw it"], []),
        pytest.param("Don&#39;t worry about Q&amp;A.", ["don't worry", "cue and ay"], ["thirty", "amp"], marks=ENTITY),
        pytest.param(
            "If 5 &lt; 6&nbsp;km, <b>go</b>.",
            ["five is less than six kilometers"],
            ["ell", "en bee", "bee"],
            marks=ENTITY,
        ),
        pytest.param("Add \\(\\frac{1}{2}\\) of it.", ["one"], ["twelve"], marks=LATEX),
        pytest.param("It is $\\frac{7}{10}$.", ["seven"], ["hundred"], marks=LATEX),
        pytest.param("Take $$\\frac{3}{4}$$ now.", ["three"], ["thirty four"], marks=LATEX),
    ],
)
def test_a_text_is_said_as_people_say_it(text: str, wanted: list[str], unwanted: list[str]) -> None:
    words = f" {said(text)} "
    assert [one for one in wanted if f" {one} " not in words] == []
    assert [one for one in unwanted if f" {one} " in words] == []


@TELEPHONE
@pytest.mark.parametrize("number", ["(415) 555-2671", "415.555.2671", "+1 (415) 555-2671", "321 555-5049"])
def test_a_telephone_number_is_said_digit_by_digit(number: str) -> None:
    words = said(f"Call {number} now.")
    assert "five five five" in words
    assert not {"hundred", "thousand", "to"} & set(words.split())
