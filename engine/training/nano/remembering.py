"""Samples dialogues in which turns depend on earlier ones: follow-ups, corrections, facts to remember, and incomplete
requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.training.nano.answers import Reply, pointed, reply_to
from engine.training.nano.follow_frames import (
    AGAIN,
    ASK,
    BEFORE_ONE,
    CITIES,
    GIVEN,
    GREET_ME,
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
    WHICH_MODEL,
    WHOLE_SUM,
)
from engine.training.nano.judge import Expect
from engine.training.nano.lexicon import DAYS, MONTHS, SPOKEN_NAMES, is_held_out_pair
from engine.training.nano.requests import expect_of, open_word, refused
from engine.training.nano.turns import Dialogue, Request, Turn, allowed, as_typed, dressed, expand
from engine.worker.models.nano.sayings import HAND_OVER
from engine.worker.models.nano.scene import COLOURS

Called = Callable[[str], str]
"""Returns the call of a turn, given its text."""


def remembering_dialogue(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """Return two to six turns; ``other`` makes a turn about something else."""
    makers = (_sums, _calendar, _words, _facts, _left_out, _hand_over, _again)
    return rng.choices(makers, (26, 14, 12, 28, 14, 6, 6))[0](rng, other)


def _sums(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """A sum, then others that refer to it."""
    op, a, b = _pair(rng)
    first = ("what is {a} {op} {b}", "{a} {op} {b}", "how much is {a} {op} {b}", "calculate {a} {op} {b}")
    turns: Dialogue = (_sum(rng, first, op, a, b),)
    terms = [str(a), str(b)]  # numbers that a later turn may correct
    for _n in range(rng.choice((1, 1, 2, 2, 3))):
        match rng.choice(("more", "less", "number", "number", "whole", "sign")):
            case "more":
                n, op = _operand(rng), "plus"
                turn, terms = _called(rng, MORE, {"n": n}, lambda text, n=n: f"calc it plus {pointed(text, n)}"), [n]
            case "less":
                n, op = _operand(rng), "minus"
                turn, terms = _called(rng, LESS, {"n": n}, lambda text, n=n: f"calc it minus {pointed(text, n)}"), [n]
            case "number":
                old = rng.choice(terms)
                new = rng.choice([n for n in map(str, range(100)) if n not in terms])
                turn = _called(
                    rng, OTHER_NUMBER, {"old": old, "new": new},
                    lambda text, old=old, new=new: f"calc swap {pointed(text, old)} {pointed(text, new)}",
                )  # fmt: skip
                terms[terms.index(old)] = new
            case "sign":
                old, op = op, "minus" if op == "plus" else "plus"
                turn = _called(rng, OTHER_SIGN, {"old": old, "op": op}, lambda _, op=op: f"calc {op}")
            case _:
                op, a, b = _pair(rng)
                turn, terms = _sum(rng, WHOLE_SUM, op, a, b), [str(a), str(b)]
        turns += (turn,)
    return turns


def _operand(rng: random.Random) -> str:
    return str(rng.randrange(10 ** rng.choice((1, 2, 2, 2, 3, 4))))


def _pair(rng: random.Random) -> tuple[str, int, int]:
    while is_held_out_pair(a := rng.randrange(100), b := rng.randrange(100)) or a == b:
        pass
    return rng.choice(("plus", "minus", "plus", "minus", "times")), a, b


def _sum(rng: random.Random, frames: tuple[str, ...], op: str, a: int, b: int) -> Turn:
    slots = {"a": str(a), "b": str(b), "op": op}
    return _called(rng, frames, slots, lambda text: f"calc {pointed(text, str(a))} {op} {pointed(text, str(b))}")


def _calendar(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """The day, month or number after another, then follow-ups."""
    names = rng.choice((DAYS, DAYS, MONTHS))
    way, new = rng.choice(("after", "after", "after", "before")), rng.choice(names)
    unit = "month" if names is MONTHS else "day"
    first = (f"(what|which {unit}|what {unit}|what) (comes|is) {way} {{new}}",)
    turns: Dialogue = (_called(rng, first, {"new": new}, lambda text: f"next {way} {pointed(text, new)}"),)
    for _n in range(rng.choice((1, 1, 2, 3))):
        old = new
        match rng.choice(("on", "on", "other", "other", "side")):
            case "on":
                turn = _called(rng, NEXT_ONE if way == "after" else BEFORE_ONE, {}, lambda _, way=way: f"next {way}")
            case "other":
                new = rng.choice([name for name in names if name != old])
                slots = {"new": new, "old": old}
                turn = _called(rng, OTHER_DAY, slots, lambda text, new=new: f"next {pointed(text, new)}")
            case _:
                way = "before" if way == "after" else "after"
                turn = _called(rng, OTHER_SIDE, {"side": way}, lambda _, way=way: f"next {way}")
        turns += (turn,)
    return turns


def _words(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """A word to spell, then others."""
    old = open_word(rng)
    first = ("spell {new}", "how do you spell {new}", "(can you |please |)spell the (word|name) {new}")
    turns: Dialogue = (_spelled(rng, first, old),)
    for _n in range(rng.choice((1, 1, 2))):
        while (new := open_word(rng)) == old:
            pass
        turns += (_spelled(rng, OTHER_WORD, new, old=old),)
        old = new
    return turns


def _spelled(rng: random.Random, frames: tuple[str, ...], word: str, **slots: str) -> Turn:
    return _called(rng, frames, {"new": word} | slots, lambda text: f"spell {pointed(text, word, last=not slots)}")


def _facts(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """The user states a fact or two, talks about other things, corrects a fact, and asks for it."""
    known: dict[str, str] = {}
    turns: Dialogue = ()
    for fact in rng.sample(list(TELL), rng.choice((1, 1, 2))):
        known[fact] = _fact(rng, fact)
        turns += (_told(rng, TELL[fact], fact, known[fact]),)
        if rng.random() < 0.3:
            while (new := _fact(rng, fact)) == known[fact]:
                pass
            old, known[fact] = known[fact], new
            turns += (_told(rng, OTHER_FACT, fact, new, old),)
    turns += tuple(other() for _ in range(rng.choice((0, 0, 1, 1, 2, 2, 3))))
    if rng.random() < 0.15:
        turns += (_called(rng, GREET_ME, {}, lambda _: "greet"),)
    for fact in dict.fromkeys((rng.choice(list(known)), rng.choice(list(ASK)))):
        turns += (_called(rng, ASK[fact], {}, lambda _, fact=fact: f"recall {fact}"),)
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
    slots = {"x": value, "new": value, "old": old}
    return _called(rng, frames, slots, lambda text: f"remember {fact} {pointed(text, value, last=not old)}")


def _left_out(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """A request without its object; nano asks for it, and the user names it or drops the request."""
    kind = rng.choice(list(LEFT_OUT))
    frames, question = LEFT_OUT[kind]
    asked = _filled(rng, frames, {}, lambda _: Reply(question))
    roll = rng.random()
    if roll < 0.1:
        return (asked, _filled(rng, NEVER_MIND, {}, lambda _: Reply("Okay.")))
    if roll < 0.2:
        return (asked, other())
    return (asked, _given(rng, kind))


def _given(rng: random.Random, kind: str) -> Turn:
    if kind in ("sum", "minus"):
        _, a, b = _pair(rng)
        return _sum(rng, GIVEN[kind], "plus" if kind == "sum" else "minus", a, b)
    if kind == "calendar":
        day = rng.choice(DAYS)
        return _called(rng, GIVEN[kind], {"day": day}, lambda text: f"next after {pointed(text, day)}")
    slots = {
        "word": open_word(rng),
        "words": " ".join(open_word(rng) for _ in range(rng.randint(1, 4))),
        "n": str(rng.randint(2, 20)),
    }
    text = expand(rng, rng.choice(GIVEN[kind]))
    slot = next(slot for slot in slots if "{" + slot + "}" in text)
    filled = text.replace("{" + slot + "}", slots[slot])
    expect = expect_of(kind, filled, {slot: slots[slot]})
    return Turn(Request(filled, expect), reply_to(rng, expect, filled))


def _hand_over(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """Perhaps a request beyond nano, then the question which model could do it."""
    explicit = tuple(frame for frame in WHICH_MODEL if "model" in frame)
    if rng.random() < 0.4:
        return (_filled(rng, explicit, {}, lambda _: Reply(HAND_OVER)),)
    request = refused(rng)
    first = Turn(request, reply_to(rng, request.expect, request.text))
    last = _filled(rng, WHICH_MODEL, {}, lambda _: Reply(HAND_OVER))
    return (first, last, *(() if rng.random() < 0.7 else (other(),)))


def _again(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """A turn about something else, then the request to repeat it."""
    return (other(), _called(rng, AGAIN, {}, lambda _: "again"))


def _called(rng: random.Random, frames: tuple[str, ...], slots: dict[str, str], call: Called) -> Turn:
    return _filled(rng, frames, slots, lambda text: Reply(call=call(text)), {"kind": "called"})


def _filled(
    rng: random.Random,
    frames: tuple[str, ...],
    slots: dict[str, str],
    reply: Callable[[str], Reply],
    expect: Expect | None = None,
) -> Turn:
    """Return a turn from one of the frames, excluding texts of the evaluation sets."""
    while True:
        text = dressed(rng, expand(rng, rng.choice(frames)))
        for slot, value in slots.items():
            text = text.replace("{" + slot + "}", value)
        request = as_typed(rng, Request(" ".join(text.split()), {"kind": "called"}))
        if allowed(request):
            break
    made = reply(request.text)
    return Turn(Request(request.text, expect or {"kind": "says", "text": made.text}), made)
