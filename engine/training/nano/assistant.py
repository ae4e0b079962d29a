"""Spelled-out sentences of an assistant, from templates and patterns; deterministic for a given generator."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

from engine.english.lexicon import LETTER_NAMES
from engine.english.numbers import cardinal, grammar
from engine.training.nano.phrases import (
    ADJECTIVES,
    CLAUSES,
    COLOURS,
    DAYS,
    FIXED,
    FRAMES,
    MONTHS,
    NAMES,
    NOUNS,
    PLACES,
    SHAPES,
    TOPICS,
    VERBS,
    WEATHER,
)

Slots = Mapping[str, Callable[[random.Random], str]]


def assistant_turn(rng: random.Random) -> str:
    """Return one to three sentences."""
    count = rng.choices((1, 2, 3), (8, 3, 1))[0]
    return " ".join(template(rng) for _ in range(count))


def number(value: int) -> str:
    """Return cardinal words without hyphens: 125 becomes "one hundred and twenty five"."""
    return cardinal(str(value))


def ordinal(value: int) -> str:
    return str(grammar().number_to_words(grammar().ordinal(str(value)))).replace("-", " ")


def spelled(word: str) -> str:
    """Return letter names: "cat" becomes "see, ay, tee"."""
    return ", ".join(LETTER_NAMES[letter] for letter in word)


def template(rng: random.Random) -> str:
    """Return one sentence from the phrase lists or from a pattern with slots."""
    if rng.random() < 0.10:
        return rng.choice(FIXED)
    if rng.random() < 0.30:
        return fill(rng, rng.choice(FRAMES))
    return rng.choice(PATTERNS)(rng)


def fill(rng: random.Random, frame: str, more: Slots | None = None) -> str:
    """Fill the slots {noun}, {name}, ... of a frame with random words; ``more`` are additional slots."""
    slots = {**SLOTS, **(more or {})}
    return re.sub(r"\{(\w+)\}", lambda m: slots[m[1]](rng), frame)


def _sum(rng: random.Random) -> str:
    kind = rng.choice(("plus", "minus", "times", "divided by"))
    a, b = rng.randrange(1, 100), rng.randrange(1, 100)
    if kind == "minus":
        a, b = max(a, b), min(a, b)
    elif kind != "plus":
        a, b = a % 13 + 1, b % 13 + 1
    left, result = (a, a + b) if kind == "plus" else (a, a - b) if kind == "minus" else (a, a * b)
    if kind == "divided by":
        left, result = a * b, a
    return f"{number(left)} {kind} {number(b)} {rng.choice(('is', 'is', 'equals', 'makes'))} {number(result)}."


def _clock(rng: random.Random) -> str:
    hour, minute = rng.randrange(1, 13), rng.randrange(60)
    minutes = "o'clock" if minute == 0 else f"oh {number(minute)}" if minute < 10 else number(minute)
    tail = rng.choice(("", "", f" {spelled('am').replace(',', '')}", " pee em", " in the morning", " in the afternoon"))
    return f"{rng.choice(('it is', 'the time is', 'right now it is', 'at'))} {number(hour)} {minutes}{tail}."


def _date(rng: random.Random) -> str:
    day, month, year = ordinal(rng.randrange(1, 32)), rng.choice(MONTHS), _year(rng)
    return rng.choice(
        (
            f"today is {rng.choice(DAYS)}, {month} {day}.",
            f"today is {rng.choice(DAYS)}, the {day} of {month}.",
            f"that was on {month} {day}, {year}.",
            f"in {year}, on the {day} of {month}.",
            f"it is the {day}.",
        )
    )


def _year(rng: random.Random) -> str:
    century, rest = rng.choice((18, 19, 19, 20, 20)), rng.randrange(100)
    if century == 20 and rest < 10:
        return "two thousand" + (f" and {number(rest)}" if rest else "")
    return f"{number(century)} " + ("hundred" if rest == 0 else f"oh {number(rest)}" if rest < 10 else number(rest))


def _amount(rng: random.Random) -> str:
    value = rng.choice((rng.randrange(100), rng.randrange(1000), rng.randrange(20000), rng.randrange(2_000_000)))
    digits = " point " + " ".join(number(rng.randrange(10)) for _ in range(rng.randrange(1, 4)))
    unit = rng.choice(
        [
            "dollars",
            "cents",
            "euros",
            "percent",
            "degrees",
            "kilometers",
            "miles",
            "meters",
            "minutes",
            "seconds",
            "hours",
            "kilograms",
            "pounds",
            "grams",
            "days",
            "weeks",
            "years",
            "people",
            "times",
        ]
    )
    opening = rng.choice(("it costs", "that is about", "it takes", "i counted", "the answer is", "almost", "there are"))
    return f"{opening} {number(value)}{digits if rng.random() < 0.2 else ''} {unit}."


def _digits(rng: random.Random) -> str:
    group = [number(rng.randrange(10)) for _ in range(rng.randrange(3, 9))]
    joint = rng.choice((" ", ", "))
    return f"{rng.choice(('the number is ', 'the code is ', 'you said ', ''))}{joint.join(group)}."


def _spelling(rng: random.Random) -> str:
    word = rng.choice(NOUNS + NAMES + [rng.choice(WEATHER)])
    return rng.choice(
        (f"{word} is spelled {spelled(word)}.", f"{spelled(word)}.", f"the word {word}, {spelled(word)}.")
    )


def _letters(rng: random.Random) -> str:
    letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 6)))
    loose = spelled(letters).replace(",", "")
    return rng.choice((f"{spelled(letters)}.", f"the {loose} is on {rng.choice(DAYS)}.", f"have you heard of {loose}?"))


def _echo(rng: random.Random) -> str:
    heard = " ".join(rng.sample(NOUNS + ADJECTIVES + COLOURS, rng.randrange(1, 5)))
    return f"{rng.choice(('you said', 'i heard', 'did you say', 'okay'))}{rng.choice((' ', ', '))}{heard}."


def _list(rng: random.Random) -> str:
    items = rng.sample(NOUNS + COLOURS + NAMES, rng.randrange(3, 6))
    return f"{', '.join(items[:-1])}, {rng.choice(('and', 'or'))} {items[-1]}."


def _clauses(rng: random.Random) -> str:
    parts = [fill(rng, rng.choice(CLAUSES)) for _ in range(2)]
    joint = rng.choice((", and ", ", but ", ", so ", " because ", " when ", " if ", ", then ", " while "))
    return parts[0] + joint + parts[1] + rng.choice("...?")


PATTERNS: list[Callable[[random.Random], str]] = [
    _sum, _sum, _clock, _date, _amount, _amount, _digits, _spelling, _letters, _echo, _list,
    _clauses, _clauses, _clauses,
]  # fmt: skip

SLOTS: dict[str, Callable[[random.Random], str]] = {
    "noun": lambda rng: rng.choice(NOUNS),
    "name": lambda rng: rng.choice(NAMES),
    "adjective": lambda rng: rng.choice(ADJECTIVES),
    "colour": lambda rng: rng.choice(COLOURS),
    "shape": lambda rng: rng.choice(SHAPES),
    "place": lambda rng: rng.choice(PLACES),
    "verb": lambda rng: rng.choice(VERBS),
    "day": lambda rng: rng.choice(DAYS),
    "month": lambda rng: rng.choice(MONTHS),
    "topic": lambda rng: rng.choice(TOPICS),
    "weather": lambda rng: rng.choice(WEATHER),
    "number": lambda rng: number(rng.choice((rng.randrange(20), rng.randrange(100), rng.randrange(1000)))),
    "ordinal": lambda rng: ordinal(rng.randrange(1, 32)),
}
