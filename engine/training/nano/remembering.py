"""Samples conversations in which a turn needs the ones before it: follow-ups, corrections, facts to remember, and
requests that leave out what they are about.

It knows no scene, no tool and no token.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.training.nano.answers import answer_to
from engine.training.nano.follow_frames import (
    ASK,
    BEFORE_ONE,
    CITIES,
    GIVEN,
    GREET_ME,
    HAND_OVER,
    KNOWN,
    LEFT_OUT,
    LESS,
    MORE,
    NEVER_MIND,
    NEXT_ONE,
    OTHER_DAY,
    OTHER_FACT,
    OTHER_NUMBER,
    OTHER_SIDE,
    OTHER_SIGN,
    OTHER_WORD,
    TELL,
    TOLD,
    UNKNOWN,
    WHICH_MODEL,
    WHOLE_SUM,
)
from engine.training.nano.lexicon import DAYS, MONTHS, SPOKEN_NAMES, is_held_out_pair
from engine.training.nano.requests import expect_of, open_word, refused
from engine.training.nano.turns import Dialogue, Request, Turn, allowed, as_typed, dressed, expand, saying
from engine.worker.models.nano.scene import COLOURS


def remembering_dialogue(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """Two to six turns; ``other`` makes one about something else."""
    makers = (_sums, _calendar, _words, _facts, _left_out, _hand_over)
    return rng.choices(makers, (26, 14, 12, 28, 14, 6))[0](rng, other)


def _sums(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """A sum, then others that refer to it."""
    op, a, b = _pair(rng)
    turns: Dialogue = (
        _said(
            rng,
            (
                rng.choice(
                    ("what is {a} {op} {b}", "{a} {op} {b}", "how much is {a} {op} {b}", "calculate {a} {op} {b}")
                ),
            ),
            op,
            a,
            b,
        ),
    )
    for _n in range(rng.choice((1, 1, 2, 2, 3))):
        value = a + b if op == "plus" else a - b
        way = rng.choice(("more", "less", "number", "number", "whole", "sign"))
        old = {"old": str(a)}
        if way == "more" and 0 <= value <= 99:
            op, a, b, frames = "plus", value, rng.randrange(60), MORE
        elif way == "less" and 0 <= value <= 99:
            op, a, b, frames = "minus", value, rng.randrange(60), LESS
        elif way == "number" and a != b:
            new = rng.choice([n for n in range(100) if n not in (a, b)])
            first = rng.random() < 0.5
            old["old"] = str(a if first else b)
            a, b, frames = (new if first else a), (b if first else new), OTHER_NUMBER
            old["new"] = str(new)
        elif way == "sign":
            old["old"], op, frames = op, ("minus" if op == "plus" else "plus"), OTHER_SIGN
        else:
            (op, a, b), frames = _pair(rng), WHOLE_SUM
        if is_held_out_pair(a, b):
            break
        turns += (_said(rng, frames, op, a, b, **old),)
    return turns


def _pair(rng: random.Random) -> tuple[str, int, int]:
    while is_held_out_pair(a := rng.randrange(100), b := rng.randrange(100)):
        pass
    return rng.choice(("plus", "minus")), a, b


def _said(rng: random.Random, frames: tuple[str, ...], op: str, a: int, b: int, **slots: str) -> Turn:
    value = a + b if op == "plus" else a - b
    expect = {"kind": "number", "op": op, "a": a, "b": b, "value": value}
    fill = {"a": str(a), "b": str(b), "n": str(b), "op": op} | slots
    return _filled(rng, frames, fill, lambda _: answer_to(rng, expect), expect)


def _calendar(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """What comes after a day, a month or a number, and on from there."""
    names = rng.choice((DAYS, DAYS, MONTHS))
    step, at = rng.choice((1, 1, 1, -1)), rng.randrange(len(names))
    side, unit = {1: "after", -1: "before"}, "month" if names is MONTHS else "day"
    turns: Dialogue = (
        _day(rng, (f"(what|which {unit}|what {unit}|what) (comes|is) {side[step]} {{new}}",), names, at, step),
    )
    for _n in range(rng.choice((1, 1, 2, 3))):
        old = names[at]
        match rng.choice(("on", "on", "other", "other", "side")):
            case "on":
                at = (at + step) % len(names)
                frames = NEXT_ONE if step == 1 else BEFORE_ONE
            case "other":
                at, frames = (at + rng.randrange(1, len(names))) % len(names), OTHER_DAY
            case _:
                step, frames = -step, OTHER_SIDE
        turns += (_day(rng, frames, names, at, step, old=old, side=side[step]),)
    return turns


def _day(rng: random.Random, frames: tuple[str, ...], names: tuple[str, ...], at: int, step: int, **slots: str) -> Turn:
    expect = {"kind": "calendar", "name": names[(at + step) % len(names)], "origin": names[at], "step": step}
    return _filled(rng, frames, {"new": names[at]} | slots, lambda _: answer_to(rng, expect), expect)


def _words(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """A word to spell, then others."""
    old = open_word(rng)
    turns: Dialogue = (
        _spelled(rng, ("spell {new}", "how do you spell {new}", "(can you |please |)spell the (word|name) {new}"), old),
    )
    for _n in range(rng.choice((1, 1, 2))):
        new = open_word(rng)
        turns += (_spelled(rng, OTHER_WORD, new, old=old),)
        old = new
    return turns


def _spelled(rng: random.Random, frames: tuple[str, ...], word: str, **slots: str) -> Turn:
    expect = {"kind": "spell", "word": word.lower()}
    return _filled(rng, frames, {"new": word} | slots, lambda _: answer_to(rng, expect), expect)


def _facts(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """The user tells a fact or two, speaks of other things, corrects himself, and asks for it."""
    known: dict[str, str] = {}
    turns: Dialogue = ()
    for fact in rng.sample(list(TELL), rng.choice((1, 1, 2))):
        known[fact] = _fact(rng, fact)
        turns += (_told(rng, TELL[fact], fact, known[fact]),)
        if rng.random() < 0.3:
            old, known[fact] = known[fact], _fact(rng, fact)
            turns += (_told(rng, OTHER_FACT, fact, known[fact], old),)
    turns += tuple(other() for _ in range(rng.choice((0, 0, 1, 1, 2, 2, 3, 7))))
    if "name" in known and rng.random() < 0.2:
        turns += (_filled(rng, GREET_ME, {}, lambda _: f"Hello, {known['name'].title()}!"),)
    for fact in {rng.choice(list(known)), rng.choice(list(ASK))}:
        turns += (_asked(rng, fact, known),)
    return turns


def _fact(rng: random.Random, fact: str) -> str:
    match fact:
        case "color":
            return rng.choice(COLOURS)
        case "city":
            return rng.choice(CITIES) if rng.random() < 0.7 else open_word(rng).lower()
        case "age":
            return str(rng.randint(3, 99))
        case _:
            return (rng.choice(SPOKEN_NAMES) if rng.random() < 0.6 else open_word(rng)).lower()


def _told(rng: random.Random, frames: tuple[str, ...], fact: str, value: str, old: str = "") -> Turn:
    shown = value if fact == "color" else value.title()
    if fact == "name":
        expect = {"kind": "user_name", "name": value}
        return _filled(
            rng, frames, {"x": value, "new": value, "old": old}, lambda _: f"Nice to meet you, {shown}.", expect
        )
    return _filled(rng, frames, {"x": value, "new": value, "old": old}, lambda _: TOLD[fact].replace("{x}", shown))


def _asked(rng: random.Random, fact: str, known: dict[str, str]) -> Turn:
    if fact not in known:
        return _filled(rng, ASK[fact], {}, lambda _: UNKNOWN[fact])
    shown = known[fact] if fact == "color" else known[fact].title()
    return _filled(rng, ASK[fact], {}, lambda _: KNOWN[fact].replace("{x}", shown))


def _left_out(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """A request without what it is about; nano asks, the user says it, or lets it be."""
    kind = rng.choice(list(LEFT_OUT))
    frames, question = LEFT_OUT[kind]
    asked = _filled(rng, frames, {}, lambda _: question)
    roll = rng.random()
    if roll < 0.1:
        return (asked, _filled(rng, NEVER_MIND, {}, lambda _: "Okay."))
    if roll < 0.2:
        return (asked, other())
    return (asked, _given(rng, kind))


def _given(rng: random.Random, kind: str) -> Turn:
    if kind in ("sum", "minus"):
        _, a, b = _pair(rng)
        return _said(rng, GIVEN[kind], "plus" if kind == "sum" else "minus", a, b)
    if kind == "calendar":
        day = rng.choice(DAYS)
        return _day(rng, GIVEN[kind], DAYS, DAYS.index(day), 1, day=day)
    slots = {
        "word": open_word(rng),
        "words": " ".join(open_word(rng) for _ in range(rng.randint(1, 4))),
        "n": str(rng.randint(2, 20)),
    }
    text = expand(rng, rng.choice(GIVEN[kind]))
    slot = next(slot for slot in slots if "{" + slot + "}" in text)
    filled = text.replace("{" + slot + "}", slots[slot])
    expect = expect_of(kind, filled, {slot: slots[slot]})
    return Turn(Request(filled, expect), answer_to(rng, expect, filled))


def _hand_over(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """Something beyond nano, or not, then which model could do it."""
    explicit = tuple(frame for frame in WHICH_MODEL if "model" in frame)
    if rng.random() < 0.4:
        return (_filled(rng, explicit, {}, lambda _: HAND_OVER),)
    request = refused(rng)
    first = Turn(request, answer_to(rng, request.expect))
    return (first, _filled(rng, WHICH_MODEL, {}, lambda _: HAND_OVER), *(() if rng.random() < 0.7 else (other(),)))


def _filled(
    rng: random.Random,
    frames: tuple[str, ...],
    slots: dict[str, str],
    answer: Callable[[str], str],
    expect: object = None,
) -> Turn:
    """A turn of one of the frames that training may see."""
    while True:
        text = dressed(rng, expand(rng, rng.choice(frames)))
        for slot, value in slots.items():
            text = text.replace("{" + slot + "}", value)
        request = as_typed(rng, Request(" ".join(text.split()), {"kind": "says"}))
        if allowed(request):
            break
    if expect is None:
        return saying(request.text, answer(text))
    return Turn(Request(request.text, expect), answer(text))  # type: ignore[arg-type]
