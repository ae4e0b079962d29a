"""The thinker's target for each kind of request: a saying, the user's own words, or a call.

In a reply, characters from ``PRIVATE`` on are markers of the user's words.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from engine.training.nano.judge import Expect
from engine.worker.models.nano.plain import normalise
from engine.worker.models.nano.sayings import HAND_OVER, REFUSALS, SAYINGS, UNHEARD
from engine.worker.models.nano.tokens import PRIVATE


@dataclass(frozen=True, slots=True)
class Reply:
    """The target: ``text`` to say, or a ``call``."""

    text: str = ""
    call: str = ""


def _those(*beginnings: str) -> tuple[str, ...]:
    return tuple(text for text in SAYINGS if text.startswith(beginnings))


SAID: dict[str, tuple[str, ...]] = {
    "greet": _those("Hello!"), "bye": _those("Goodbye!"), "thanks": _those("You are welcome"),
    "howareyou": _those("I am fine"), "name": _those("My name"), "abilities": _those("I can see"),
    "limits": _those("I cannot talk"), "what": _those("I am nano"), "maker": _those("I was trained"),
    "where": _those("I run on"), "hear": _those("Yes, I am here"), "language": _those("I only speak"),
    "joke": _those("Why did", "What do you call", "Why was"), "coin": ("Heads.", "Tails."),
    "dice": _those("You rolled"),
    "compliment": _those("Thank you"), "insult": _those("I am sorry. I am"), "sorry": _those("No problem"),
    "okay": ("Okay.",), "mood_good": _those("I am glad"), "mood_bad": _those("I am sorry to"), "unheard": UNHEARD,
    "alphabet": _those("a, b"), "days": _those("Monday,"), "months": _those("January,"), "week": _those("A week"),
    "year": _those("A year"), "refuse": REFUSALS, "hand_over": (HAND_OVER,),
}  # fmt: skip
"""Sayings that answer each kind of request."""


def reply_to(rng: random.Random, expect: Expect, text: str) -> Reply:
    """Return the reply to a request of the expected kind and payload, for the words of ``text``."""
    match str(expect["kind"]):
        case "repeat":
            return Reply(text=pointed(text, str(expect["words"]), last=True))
        case "spell":
            return Reply(call=f"spell {pointed(text, str(expect['word']), last=True)}")
        case "count":
            down, last = int(expect["last"]) < int(expect["first"]), max(int(expect["first"]), int(expect["last"]))
            return Reply(call=f"count {'down ' if down else ''}{pointed(text, str(last))}")
        case "calendar":
            way = "after" if expect["step"] == 1 else "before"
            return Reply(call=f"next {way} {pointed(text, str(expect['origin']))}")
        case "list":
            return Reply(rng.choice(SAID["days" if str(expect["names"]).startswith("monday") else "months"]))
        case "user_name":
            return Reply(call=f"remember name {pointed(text, str(expect['name']), last=True)}")
        case "name_unknown":
            return Reply(call="recall name")
        case "see":
            return Reply(call="look describe")
        case "time" | "date" as kind:
            return Reply(call=f"get_{kind}")
        case "number":
            return _number(rng, expect, text)
        case kind:
            return Reply(rng.choice(SAID[kind]))


def _number(rng: random.Random, expect: Expect, text: str) -> Reply:
    match str(expect["op"]):
        case "after" | "before" as way:
            return Reply(call=f"next {way} {pointed(text, str(expect['n']))}")
        case "week" | "year" as unit:
            return Reply(rng.choice(SAID[unit]))
        case op:
            a, b = pointed(text, str(expect["a"])), pointed(text, str(expect["b"]))
            if expect["a"] == expect["b"]:
                b = pointed(text, str(expect["b"]), last=True)
            return Reply(call=f"calc {a} {op} {b}")


def pointed(text: str, value: str, last: bool = False) -> str:
    """Return the markers of the words of ``text`` that equal ``value``, separated by spaces; the first or the ``last``
    place.
    """
    words = _plain(normalise(text))
    for wanted in (_plain(normalise(value)), _plain(value)):
        starts = [i for i in range(len(words)) if wanted and words[i : i + len(wanted)] == wanted]
        if starts:
            break
    else:
        raise ValueError(f"{value!r} is not in {text!r}")
    start = starts[-1 if last else 0]
    return " ".join(chr(PRIVATE + i) for i in range(start, start + len(wanted)))


def _plain(text: str) -> list[str]:
    return [word.strip(".,!?\":;'").lower() for word in text.split()]
