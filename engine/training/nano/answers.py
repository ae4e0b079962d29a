"""What nano answers to each kind of request.

Scratch characters: before a number that has to be computed, the answer holds its digits in the order in which they
are easy (units first), as private-use characters. The model reads them back; nobody sees or hears them.
It knows no template and no token.
"""

from __future__ import annotations

import random
import string

from engine.training.nano.judge import Expect

SCRATCH = 0xE000
"""Scratch digit d is the character SCRATCH + d."""

BIGGER = "Load a bigger model to ask me that."
SAYINGS: dict[str, tuple[str, ...]] = {
    "greet": ("Hello! What can I do for you?", "Hello! I am nano. How can I help?"),
    "bye": ("Goodbye! It was nice to talk to you.",),
    "thanks": ("You are welcome!",),
    "howareyou": ("I am fine, thank you. How can I help?",),
    "name": ("My name is nano.",),
    "abilities": (
        "I can greet you, repeat your words, spell words, add and subtract small numbers, count, "
        "and tell the time and the date.",
    ),
    "limits": (
        "I cannot see, I know nothing about the world, and I cannot talk freely. For that, load a bigger model.",
    ),
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
    "see": ("I cannot see pictures yet.",),
    "unheard": ("Sorry, I didn't catch that.", "Sorry, I didn't catch that. Can you say it again?"),
    "alphabet": (", ".join(string.ascii_lowercase) + ".",),
    "name_unknown": ("I don't know your name yet.",),
    "refuse": (f"I don't know. {BIGGER}", f"I don't know that. I am only a small model. {BIGGER}"),
}


def answer_to(rng: random.Random, expect: Expect) -> str:
    """The answer to a request of that kind and payload, scratch characters included."""
    match str(expect["kind"]):
        case "repeat":
            words = str(expect["words"])
            return words if words.endswith((".", "!", "?")) else f"{words}."
        case "spell":
            return ", ".join(str(expect["word"]).lower()) + "."
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
    match expect["op"]:
        case "after" | "before" as op:
            return f"{str(op).title()} {expect['n']} comes {value}."
        case "week":
            return "A week has 7 days."
        case "year":
            return "A year has 12 months."
        case op:
            sign = "minus " if value < 0 else ""
            return f"{expect['a']} {op} {expect['b']} is {sign}{scratch(abs(value))}{abs(value)}."


def scratch(number: int) -> str:
    """The digits of the number, units first, as characters that are never shown."""
    return "".join(chr(SCRATCH + int(digit)) for digit in reversed(str(number)))
