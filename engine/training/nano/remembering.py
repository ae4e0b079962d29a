"""Samples conversations in which a turn needs the ones before it: follow-ups, corrections, facts to remember, and
requests that leave out what they are about.

It knows no scene, no tool and no token.
"""

# ruff: noqa: E501 - one template a line

from __future__ import annotations

import random
from collections.abc import Callable

from engine.training.nano.answers import answer_to
from engine.training.nano.lexicon import DAYS, MONTHS, SPOKEN_NAMES, is_held_out_pair
from engine.training.nano.requests import expect_of, open_word, refused
from engine.training.nano.seeing import COLOURS
from engine.training.nano.turns import Dialogue, Request, Turn, allowed, as_typed, expand, saying

_AND = "(and|and|and what is|and what about|what about|how about|now|then|and now|||)"
_NO = "(no|no no|sorry|no sorry|oh no|wait|no wait|oh sorry|nano no|||)"
_MEANT = f"{_NO} (i meant|i mean|i said|i wanted|i was asking for|it should be|make that|that should be)"

MORE = (
    "(and |now |and now |then |)(plus|add) {n} (more|to that|to it|please|)", "and {n} (more|on top)",
    "(and |now |)(what is |)that plus {n}", "plus {n}", "(and |)if you add {n} (to that|to it|more)",
    "(now |)add another {n}",
)  # fmt: skip
LESS = (
    "(and |now |and now |then |)minus {n}", "(and |now |please |)(subtract|take away|take) {n} (from that|from it|away|)",
    "(and |now |)(what is |)that minus {n}", "minus {n}", "(and |){n} less", "(and |)without {n}",
    "(and |)if you (subtract|take away) {n}",
)  # fmt: skip
OTHER_NUMBER = (
    f"{_NO} not {{old}} (but|i said|i meant|) {{new}}", f"{_MEANT} {{new}} not {{old}}", f"{_NO} {{new}} not {{old}}",
    f"{_NO} {{new}} instead of {{old}}", "(and |)with {new} instead of {old}", f"{_NO} the {{old}} should be {{new}}",
)  # fmt: skip
WHOLE_SUM = (f"{_MEANT} {{a}} {{op}} {{b}}", f"{_NO} {{a}} {{op}} {{b}}", f"{_AND} {{a}} {{op}} {{b}}")
OTHER_SIGN = (f"{_MEANT} {{op}}", "(no|sorry|no no|no sorry) {op}", "not {old} (but|) {op}", f"{_NO} {{op}} not {{old}}")

NEXT_ONE = (
    "(and |)(after|what comes after|what is after|what follows) (that|it)", "and then (what|)", "and the next (one|)",
    "(and |)what (comes|is) next", "(the |and the |)next (one|)( please|)",
)  # fmt: skip
BEFORE_ONE = ("(and |)(before|what comes before|what is before) (that|it)", "(and |)the one before (that|it|)")
OTHER_DAY = (f"{_AND} {{new}}", f"{_MEANT} {{new}}", f"{_NO} {{new}}", f"{_NO} not {{old}} (but|i meant|) {{new}}", f"{_NO} {{new}} not {{old}}")
OTHER_SIDE = (f"{_MEANT} {{side}}", "(no|sorry|no no|no sorry|and|) {side}", "(and |no |)what comes {side} (it|that)")

OTHER_WORD = (
    "(and|and|and how about|what about|now|and the word|then|next) {new} (please|)", f"{_MEANT} {{new}}", f"{_NO} not {{old}} (but|i said|) {{new}}",
    f"{_NO} {{new}} not {{old}}", f"{_NO} the (word|name) (is|was) {{new}}",
)  # fmt: skip

TELL: dict[str, tuple[str, ...]] = {
    "name": ("my name is {x}", "(hello |hi |hey |)(i am|call me|my name's|i'm|this is) {x}", "(please |you can |)call me {x}", "(remember |)my name is {x}"),
    "color": ("my favorite (color|colour) is {x}", "(the |)(color|colour) i like (best|most) is {x}", "{x} is my favorite (color|colour)", "(remember |please remember |)my favorite (color|colour) is {x}"),
    "city": ("i live in {x}", "(remember |)my (city|town|home town|home) is {x}", "(i am|i come|i'm) from {x}", "(remember |please remember |)(that |)i live in {x}"),
    "age": ("i am {x} years old", "my age is {x}", "(remember |)(that |)i am {x} (years old|years)", "i turned {x} (today|yesterday)"),
    "dog": ("my (dog|dog's name) is (called |){x}", "(i have|i've got) a dog (called|named) {x}", "the name of my dog is {x}", "my dog is {x}"),
}  # fmt: skip
ASK: dict[str, tuple[str, ...]] = {
    "name": ("(so |and |nano |)what is my name (nano|now|)", "(do you |can you |)(still |)(know|remember) (my name|who i am|what my name is|what i am called)", "(please |can you |)tell me my name (again|)", "who am i", "what did i (say|tell you) my name (is|was)", "how am i called", "what do you call me", "what am i called"),
    "color": ("(so |and |nano |)what is my favorite (color|colour)", "(do you |)(still |)(know|remember) my favorite (color|colour)", "(which|what) (color|colour) do i like (best|most|)", "what did i say my favorite (color|colour) (is|was)", "tell me my favorite (color|colour)"),
    "city": ("(so |and |nano |)where do i live", "(do you |)(still |)(know|remember) where i (live|come from|am from)", "(which|what) (city|town) (do i live in|am i from|is mine)", "where am i from", "where did i say i live"),
    "age": ("(so |and |nano |)how old am i (now|)", "(do you |)(still |)(know|remember) (how old i am|my age)", "what is my age", "how old did i say i am"),
    "dog": ("(so |and |nano |)what is (my dog called|the name of my dog|my dog's name)", "(do you |)(still |)(know|remember) (my dog's name|the name of my dog|what my dog is called)", "how is my dog called", "tell me my dog's name", "what did i say my dog is called"),
}  # fmt: skip
TOLD = {
    "color": "Okay. Your favorite color is {x}.", "city": "Okay. You live in {x}.",
    "age": "Okay. You are {x}.", "dog": "Okay. Your dog is {x}.",
}  # fmt: skip
KNOWN = {
    "name": "Your name is {x}.", "color": "Your favorite color is {x}.", "city": "You live in {x}.", "age": "You are {x}.", "dog": "Your dog is {x}.",
}  # fmt: skip
UNKNOWN = {
    "name": "I don't know your name yet.", "color": "I don't know your favorite color yet.",
    "city": "I don't know where you live yet.", "age": "I don't know your age yet.", "dog": "I don't know your dog yet.",
}  # fmt: skip
OTHER_FACT = (f"{_MEANT} {{new}}", f"{_NO} (it is|that is|) {{new}} not {{old}}", f"{_NO} not {{old}} (but|it is|) {{new}}", f"{_NO} it is {{new}}", f"{_NO} {{new}}")
GREET_ME = ("(please |can you |now |)greet me (nano|please|)", "(please |can you |now |)greet me by (my |)name", "(please |can you |)welcome me")
CITIES = (
    "london paris berlin madrid rome vienna tokyo boston chicago toronto sydney dublin oslo lisbon athens cairo delhi moscow "
    "warsaw prague zurich geneva munich hamburg milan naples seattle denver dallas miami houston austin york leeds"
).split()  # fmt: skip

LEFT_OUT: dict[str, tuple[tuple[str, ...], str]] = {
    "sum": (("(can you |please |could you |)add (two numbers|something|some numbers|numbers) (for me|please|)", "(can you |please |)do a sum (for me|)", "(can you |please |)add for me"), "Which numbers?"),
    "minus": (("(can you |please |could you |)subtract (two numbers|something|some numbers|numbers) (for me|please|)", "(can you |please |)take one number from another"), "Which numbers?"),
    "spell": (("(can you |please |could you |)spell (a word|something|a name|a word for me|something for me)", "(can you |please |)spell for me", "how do you spell it"), "Which word?"),
    "repeat": (("(can you |please |could you |)(repeat|say) (something|a word|some words|after me|something for me)", "repeat what i say"), "What shall I say?"),
    "count": (("(can you |please |could you |)count (for me|something|a little|please)", "(can you |please |)count", "start counting"), "Up to which number?"),
    "calendar": (("(what|which) day (comes|is) (next|after)", "tell me the next day"), "After which day?"),
}  # fmt: skip
"""What a request leaves out -> how it is said, and what nano asks back."""
GIVEN = {
    "sum": ("{a} and {b}", "{a} plus {b}", "(the numbers |)(are |){a} and {b}", "take {a} and {b}", "{a} {b}"),
    "minus": ("{b} from {a}", "{a} minus {b}", "(please |){b} from {a}", "take {b} from {a}"),
    "spell": ("{word}", "the (word|name) {word}", "{word} please", "(maybe|well|for example|try) {word}"),
    "repeat": ("{words}", "{words}"),
    "count": ("{n}", "(up |)to {n}", "(up |)to {n} please", "{n} please"),
    "calendar": ("{day}", "after {day}", "{day} please"),
}  # fmt: skip
WHICH_MODEL = (
    "(which|what) (bigger |other |)(model|models) (can|should|could|do) i (load|use|start|take|try)", "which (bigger |)(model|one) (is that|do you mean|would that be|is better)",
    "how (do|can) i (load|start|use|get|run) (a|the|that|one|another) (bigger|better|larger|real|other) model", "(what|which) bigger model", "(okay |)(load|start|use|get|give me|run) (a|the|that|another) (bigger|better|larger) model",
    "is there a (bigger|better|larger|smarter) (model|one|version)", "(and |)how do i do that", "(and |)how (does that work|can i load it)", "(and |)which one",
)  # fmt: skip
HAND_OVER = "Stop me and start Parley with a config of Qwen3 Omni. That one needs a graphics card."
NEVER_MIND = ("never mind", "forget it", "nothing", "cancel", "stop")


def remembering_dialogue(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """Two to six turns; ``other`` makes one about something else."""
    makers = (_sums, _calendar, _words, _facts, _left_out, _hand_over)
    return rng.choices(makers, (26, 14, 12, 28, 14, 6))[0](rng, other)


def _sums(rng: random.Random, _: Callable[[], Turn]) -> Dialogue:
    """A sum, then others that refer to it."""
    op, a, b = _pair(rng)
    turns: Dialogue = (_said(rng, (rng.choice(("what is {a} {op} {b}", "{a} {op} {b}", "how much is {a} {op} {b}", "calculate {a} {op} {b}")),), op, a, b),)
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
    side = {1: "after", -1: "before"}
    turns: Dialogue = (_day(rng, (f"(what|which day|which month|what) (comes|is) {side[step]} {{new}}",), names, at, step),)
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
    turns: Dialogue = (_spelled(rng, ("spell {new}", "how do you spell {new}", "(can you |please |)spell the (word|name) {new}"), old),)
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
    turns += tuple(other() for _ in range(rng.choice((0, 0, 1, 1, 2))))
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
        return _filled(rng, frames, {"x": value, "new": value, "old": old}, lambda _: f"Nice to meet you, {shown}.", expect)
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
    slots = {"word": open_word(rng), "words": " ".join(open_word(rng) for _ in range(rng.randint(1, 4))), "n": str(rng.randint(2, 20))}
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
    rng: random.Random, frames: tuple[str, ...], slots: dict[str, str], answer: Callable[[str], str], expect: object = None
) -> Turn:
    """A turn of one of the frames that training may see."""
    while True:
        text = expand(rng, rng.choice(frames))
        for slot, value in slots.items():
            text = text.replace("{" + slot + "}", value)
        request = as_typed(rng, Request(" ".join(text.split()), {"kind": "says"}))
        if allowed(request):
            break
    if expect is None:
        return saying(request.text, answer(text))
    return Turn(Request(request.text, expect), answer(text))  # type: ignore[arg-type]
