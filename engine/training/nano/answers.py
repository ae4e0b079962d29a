"""What nano answers to each kind of request.

Answers hold private-use characters for what is not text: scratch digits, in which a number is computed step by step
before it is said; the mark that spells what follows; the marks of the user's words, by which they are repeated.
Each step of the computing depends on the few digits just before it alone, so that a small network learns it from few
examples (Nye et al. 2021, arXiv:2112.00114). It knows no template and no token.
"""

from __future__ import annotations

import random
import string

from engine.training.nano.judge import Expect
from engine.training.nano.seeing import NO_PICTURE

SCRATCH = 0xE000
"""Scratch digit d is the character SCRATCH + d."""
SPELL = SCRATCH + 10
"""The characters after this one are said one by one."""
WORD = SPELL + 1
"""The character WORD + k is the user's word number k, from 0."""

BIGGER = "Load a bigger model to ask me that."
SAYINGS: dict[str, tuple[str, ...]] = {
    "greet": ("Hello! What can I do for you?", "Hello! I am nano. How can I help?"),
    "bye": ("Goodbye! It was nice to talk to you.",),
    "thanks": ("You are welcome!",),
    "howareyou": ("I am fine, thank you. How can I help?",),
    "name": ("My name is nano.",),
    "abilities": (
        "I can see colors, shapes and numbers, repeat and spell words, add and subtract, count, "
        "remember your name, and tell the time.",
    ),
    "limits": ("I cannot talk freely, and I know nothing about the world. For that, load a bigger model.",),
    "what": ("I am nano, a tiny language model that runs on this computer.",),
    "maker": ("I was trained on made up dialogues by the makers of Parley.",),
    "where": ("I run on this computer.",),
    "hear": ("Yes, I am here. What can I do for you?",),
    "language": ("I only speak English.",),
    "joke": (
        "Why did the robot cross the road? It was programmed by a chicken.",
        "What do you call a bear without teeth? A gummy bear.",
        "Why was six afraid of seven? Because seven eight nine.",
    ),
    "coin": ("Heads.", "Tails."),
    "dice": tuple(f"You rolled a {n}." for n in range(1, 7)),
    "compliment": ("Thank you, that is kind.",),
    "insult": ("I am sorry. I am only a small model.",),
    "sorry": ("No problem.",),
    "okay": ("Okay.",),
    "mood_good": ("I am glad to hear that.",),
    "mood_bad": ("I am sorry to hear that.",),
    "see": (NO_PICTURE,),
    "unheard": ("Sorry, I didn't catch that.", "Sorry, I didn't catch that. Can you say it again?"),
    "alphabet": (", ".join(string.ascii_lowercase) + ".",),
    "name_unknown": ("I don't know your name yet.",),
    "refuse": (f"I don't know. {BIGGER}", f"I don't know that. I am only a small model. {BIGGER}"),
}


def answer_to(rng: random.Random, expect: Expect, text: str = "") -> str:
    """The answer to a request of that kind and payload, whose words are those of ``text``."""
    match str(expect["kind"]):
        case "repeat":
            count, total = len(str(expect["words"]).split()), len(text.split())
            return "".join(chr(WORD + k) for k in range(total - count, total))
        case "spell":
            return chr(SPELL) + str(expect["word"]).lower()
        case "count":
            first, last = int(expect["first"]), int(expect["last"])
            step = 1 if last >= first else -1
            return ", ".join(str(n) for n in range(first, last + step, step)) + "."
        case "calendar":
            where = "After" if expect["step"] == 1 else "Before"
            return f"{where} {str(expect['origin']).title()} comes {str(expect['name']).title()}."
        case "list":
            return ", ".join(name.title() for name in str(expect["names"]).split()) + "."
        case "user_name":
            return f"Nice to meet you, {str(expect['name']).title()}."
        case "number":
            return _number(expect)
        case kind:
            return rng.choice(SAYINGS[kind])


def _number(expect: Expect) -> str:
    value = int(expect["value"])
    said = f"minus {-value}." if value < 0 else f"{value}."
    match expect["op"]:
        case "after":
            return f"After {expect['n']} comes {_added(int(expect['n']), 1)}{said}"
        case "before":
            return f"Before {expect['n']} comes {_subtracted(int(expect['n']), 1)}{said}"
        case "week":
            return "A week has 7 days."
        case "year":
            return "A year has 12 months."
        case op:
            a, b = int(expect["a"]), int(expect["b"])
            compute = {"plus": _added, "minus": _subtracted, "times": _multiplied}[str(op)]
            return f"{a} {op} {b} is {compute(a, b)}{said}"


def _added(a: int, b: int) -> str:
    """Units, their carry and sum; tens, the carry, and what they make."""
    carry, unit = divmod(a % 10 + b % 10, 10)
    hundred, ten = divmod(a // 10 + b // 10 + carry, 10)
    return _scratch(a % 10, b % 10, carry, unit, a // 10, b // 10, carry, hundred, ten)


def _subtracted(a: int, b: int) -> str:
    """Which is larger (0 neither, 1 the first, 2 the second), by tens, then by units; larger minus smaller."""
    by_tens = _compared(a // 10, b // 10)
    order = by_tens or _compared(a % 10, b % 10)
    large, small = max(a, b), min(a, b)
    borrow = int(large % 10 < small % 10)
    unit, ten = (large - small) % 10, large // 10 - small // 10 - borrow
    compare = (a // 10, b // 10, by_tens, a % 10, b % 10, order)
    return _scratch(*compare, large % 10, small % 10, borrow, unit, large // 10, small // 10, borrow, ten)


def _compared(a: int, b: int) -> int:
    return 0 if a == b else 1 if a > b else 2


def _multiplied(a: int, b: int) -> str:
    return _scratch(a // 10, a % 10, b // 10, b % 10)


def _scratch(*digits: int) -> str:
    return "".join(chr(SCRATCH + digit) for digit in digits)
