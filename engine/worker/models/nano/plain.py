"""Normalizes users' sentences to plain words: one form for typed and recognized text, the form that nano was trained
on.
"""

from __future__ import annotations

import re
import unicodedata


def normalise(text: str) -> str:
    """Return the text in the form that the model was trained on.

    The result is ASCII. Requests to repeat something keep case and punctuation. All others become lower-case words
    without punctuation, with contractions expanded and numbers as digits: "What's forty-two + 17?" becomes "what is 42
    plus 17".
    """
    text = " ".join(ascii_text(text).split())
    if re.search(r"\b(repeat|say|echo)\b", text, re.IGNORECASE):
        return text
    text = text.lower()
    for pattern, word in _OPERATORS:
        text = re.sub(pattern, word, text)
    text = re.sub(r"(?<!\w)'|'(?!\w)|[^a-z0-9' ]", " ", text)
    if not re.search(r"\b(spell|spelled|spelling|written)\b", text):
        for pattern, word in _CONTRACTIONS:
            text = re.sub(pattern, word, text)
        text = " ".join(_digits(text.split()))
    return " ".join(text.split())


_OPERATORS = (
    (r"\+", " plus "),
    (r"\bhundred and\b", "hundred"),
    (r"(?<=\d)\s*-\s*(?=\d)", " minus "),
    (r"(?<=\d)\s*[*x]\s*(?=\d)", " times "),
    (r"(?<=\d)\s*/\s*(?=\d)", " divided by "),
)
_CONTRACTIONS = (
    (r"\b(what|where|who|how|it|that|there|he|she|when|why|name)'s\b", r"\1 is"),
    (r"\blet's\b", "let us"),
    (r"\bi'm\b", "i am"),
    (r"\bcan't\b", "cannot"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"'d\b", " would"),
)
SMALL_NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBERS = {word: i for i, word in enumerate(SMALL_NUMBERS)} | {word: 20 + 10 * i for i, word in enumerate(_TENS)}


def _digits(words: list[str]) -> list[str]:
    """Convert number words to digits: ["forty", "two"] becomes ["42"], ["one", "hundred", "five"] becomes ["105"]."""
    out: list[str] = []
    room = 0  # the next number word joins the previous one if it is below this
    for word in words:
        value = _NUMBERS.get(word)
        if value is not None and 0 < value < room:
            out[-1] = str(int(out[-1]) + value)
            room = 10 if value >= 20 else 0
        elif value is not None:
            out.append(str(value))
            room = 10 if value >= 20 else 0
        elif word == "hundred" and out and re.fullmatch("[1-9]", out[-1]):
            out[-1] += "00"
            room = 100
        else:
            out.append(word)
            room = 0
    return out


def ascii_text(text: str) -> str:
    """Return the text in ASCII: accents removed, typographic signs replaced, other characters dropped."""
    text = text.translate(_PLAIN)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


_PLAIN = str.maketrans("’‘“”–—−×÷", "''\"\"---*/")
