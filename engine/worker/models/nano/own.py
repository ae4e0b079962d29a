"""nano's own tools: answers that are computed, looked up or read from a picture instead of generated.

The language model turns a request into a call ("calc 12 plus 30", "next after monday", "look color circle"), and this
module turns the call into the answer. A call may refer to the conversation: "calc it plus 8" continues the last sum,
"recall name" finds the confirmed name. These facts are read from nano's own earlier answers, so there is no other
state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from engine.worker.models.nano.plain import SMALL_NUMBERS
from engine.worker.models.nano.scene import Scene
from engine.worker.models.nano.seeing import looked

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
LARGEST = 10**12
"""Largest number that nano says."""
FURTHEST = 100
"""Largest number to count to."""
TOO_LONG = "I cannot say a number that long."
TOO_FAR = "I cannot count that far."
NO_NUMBER = "Sorry, which numbers do you mean?"
NO_DAY = "Sorry, after what?"
NOTHING_SAID = "I have not said anything yet."
NO_WORD = "Sorry, which word do you mean?"


@dataclass(frozen=True, slots=True)
class View:
    """Data that the tools can read."""

    said: Sequence[str] = ()
    """nano's earlier answers, oldest first."""
    scenes: Sequence[Scene] = ()
    """Descriptions of the pictures, oldest first."""
    skill: str = ""
    """Skill of the last client tool call."""
    returned: str = ""
    """Result of that call."""
    now: Callable[[], datetime] = field(default=datetime.now)


def answer(call: str, view: View) -> str | None:
    """Return the answer to a call, or None for an unknown tool."""
    name, _, rest = call.partition(" ")
    tool = TOOLS.get(name)
    return None if tool is None else tool(rest.split(), view)


# Numbers

_SUM = re.compile(r"(.+) is (minus )?(\d+)\.")
_OPERATORS = ("plus", "minus", "times")


def _calc(words: Sequence[str], view: View) -> str:
    terms = _terms(words, view)
    if terms is None:
        return NO_NUMBER
    value = _value(terms)
    if abs(value) > LARGEST or any(isinstance(term, int) and abs(term) > LARGEST for term in terms):
        return TOO_LONG
    return f"{' '.join(map(_number, terms))} is {_number(value)}."


def _terms(words: Sequence[str], view: View) -> list[int | str] | None:
    """Return numbers and operators in turn, or None if they do not form a sum."""
    last = _last_sum(view)
    match words:
        case ["swap", old, new] if last and _int(old) in last[0] and _int(new) is not None:
            at = [term == _int(old) for term in last[0]].index(True)
            return [*last[0][:at], _int(new) or 0, *last[0][at + 1 :]]
        case [sign] if last and sign in _OPERATORS:
            return [sign if isinstance(term, str) else term for term in last[0]]
        case ["it", sign, number] if last and sign in _OPERATORS and _int(number) is not None:
            return [last[1], sign, _int(number) or 0]
        case _:
            terms = [word if word in _OPERATORS else _int(word) for word in words]
    in_turn = all((n % 2 == 1) == isinstance(term, str) for n, term in enumerate(terms))
    return [term for term in terms if term is not None] if None not in terms and len(terms) % 2 and in_turn else None


def _value(terms: Sequence[int | str]) -> int:
    """Evaluate products first, then sums from left to right."""
    summands = [int(terms[0])]
    for sign, term in zip(terms[1::2], terms[2::2], strict=True):
        if sign == "times":
            summands[-1] *= int(term)
        else:
            summands.append(-int(term) if sign == "minus" else int(term))
    return sum(summands)


def _last_sum(view: View) -> tuple[list[int | str], int] | None:
    """Return the terms and the value of the last sum that nano said."""
    for text in reversed(view.said):
        if found := _SUM.fullmatch(text):
            words = re.sub(r"\bminus (?=\d)", "minus_", found[1])  # a sign, unless a number precedes it
            words = re.sub(r"(?<=\d) minus_", " minus ", words).replace("minus_", "-")
            terms = [word if word in _OPERATORS else _int(word) for word in words.split()]
            if None not in terms:
                return [term for term in terms if term is not None], int(found[3]) * (-1 if found[2] else 1)
    return None


def _int(word: str) -> int | None:
    return int(word) if re.fullmatch(r"-?\d{1,40}", word) else None


def _number(term: int | str) -> str:
    return term if isinstance(term, str) else f"minus {-term}" if term < 0 else str(term)


def _count(words: Sequence[str], _: View) -> str:
    last = _int(words[-1]) if words else None
    if last is None:
        return "Up to which number?"
    if not 1 <= last <= FURTHEST:
        return TOO_FAR
    numbers = range(last, 0, -1) if words[0] == "down" else range(1, last + 1)
    return ", ".join(map(str, numbers)) + "."


# The next number, day or month

_NEXT = re.compile(r"(After|Before) (\w+|minus \d+) comes (\w+|minus \d+)\.")


def _next(words: Sequence[str], view: View) -> str:
    """Answer "after monday".

    "friday" alone keeps the direction of the last answer. "after" alone continues from the last answer, or turns to the
    other side of the same day.
    """
    last = next((found for text in reversed(view.said) if (found := _NEXT.fullmatch(text))), None)
    way = next((word for word in words if word in ("after", "before")), last[1].lower() if last else "after")
    named = [word for word in words if word not in ("after", "before")]
    if not named and last is None:
        return NO_DAY
    origin = named[-1] if named or last is None else last[3] if last[1].lower() == way else last[2]
    step = 1 if way == "after" else -1
    number = _int(origin.replace("minus ", "-"))
    if number is not None:
        return f"{way.title()} {_number(number)} comes {_number(number + step)}."
    for names in (DAYS, MONTHS):
        if origin.title() in names:
            found = names[(names.index(origin.title()) + step) % len(names)]
            return f"{way.title()} {origin.title()} comes {found}."
    return NO_DAY


# Words


def _spell(words: Sequence[str], _: View) -> str:
    plain = [SMALL_NUMBERS[int(word)] if word in _SMALL else word for word in words]  # normalise() writes "one" as "1"
    letters = [letter for word in plain for letter in word if letter.isalnum()]
    return ", ".join(letters) or NO_WORD


_SMALL = frozenset(map(str, range(len(SMALL_NUMBERS))))


def _again(_: Sequence[str], view: View) -> str:
    return view.said[-1] if view.said else NOTHING_SAID


# Facts that the user gave of themselves

FACTS = {
    "name": ("Nice to meet you, {x}.", "Your name is {x}.", "I don't know your name yet."),
    "color": (
        "Okay. Your favorite color is {x}.",
        "Your favorite color is {x}.",
        "I don't know your favorite color yet.",
    ),
    "city": ("Okay. You live in {x}.", "You live in {x}.", "I don't know where you live yet."),
    "age": ("Okay. You are {x}.", "You are {x}.", "I don't know your age yet."),
    "dog": ("Okay. Your dog is {x}.", "Your dog is {x}.", "I don't know your dog yet."),
}
"""Facts about the user, each with its confirmation, its later answer, and the answer if it is unknown."""


def _remember(words: Sequence[str], _: View) -> str:
    fact, *value = words or [""]
    if fact not in FACTS or not value:
        return "Okay."
    said = " ".join(value)
    return FACTS[fact][0].replace("{x}", said if fact == "color" else said.title())


def _recall(words: Sequence[str], view: View) -> str:
    _, known, unknown = FACTS.get(words[0] if words else "", FACTS["name"])
    value = _confirmed(words[0] if words else "name", view)
    return known.replace("{x}", value) if value else unknown


def _greet(_: Sequence[str], view: View) -> str:
    name = _confirmed("name", view)
    return f"Hello, {name}!" if name else "Hello! What can I do for you?"


def _confirmed(fact: str, view: View) -> str:
    """Return the last confirmed value of a fact, or ""."""
    pattern = re.escape(FACTS.get(fact, FACTS["name"])[0]).replace(r"\{x\}", "(.+)")
    return next((found[1] for text in reversed(view.said) if (found := re.fullmatch(pattern, text))), "")


# The clock, the eyes, and the results of a client's tools


def _time(_: Sequence[str], view: View) -> str:
    now = view.now()
    return f"It is {now.hour}:{now.minute:02}."


def _date(_: Sequence[str], view: View) -> str:
    now = view.now()
    return f"It is {now:%A, %B} {now.day}, {now.year}."


def _look(words: Sequence[str], view: View) -> str:
    return looked(" ".join(words), view.scenes)


def _result(_: Sequence[str], view: View) -> str:
    if not view.returned:
        return "Done."
    return f"{'The weather:' if view.skill == 'weather' else 'It is'} {view.returned.rstrip('.')}."


TOOLS: dict[str, Callable[[Sequence[str], View], str]] = {
    "calc": _calc, "count": _count, "next": _next, "spell": _spell, "again": _again, "remember": _remember,
    "recall": _recall, "greet": _greet, "get_time": _time, "get_date": _date, "look": _look, "tell": _result,
}  # fmt: skip
"""Tools by name; each turns the call's words and the view into an answer."""
