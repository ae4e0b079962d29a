"""Samples single requests from templates: spoken and typed requests, and requests that nano refuses."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from engine.training.nano.answers import reply_to
from engine.training.nano.follow_frames import CITIES
from engine.training.nano.lexicon import (
    DAYS,
    FIGURES,
    MONTHS,
    PLACES,
    SPOKEN_NAMES,
    SPOKEN_WORDS,
    THINGS,
    TOPICS,
    dictionary_words,
    is_held_out_word,
    number_words,
)
from engine.training.nano.templates import CLOSERS, IN_CONVERSATION, OPENERS, REFUSED, REQUESTS, TYPED_ONLY, WRAPPED
from engine.training.nano.turns import Request, Turn, allowed, as_typed, expand
from engine.worker.models.nano.scene import COLOURS, SHAPES

SLOTS: dict[str, tuple[str, ...]] = {
    "word": SPOKEN_WORDS + SPOKEN_NAMES,
    "name": SPOKEN_NAMES,
    "a": tuple(number_words(n) for n in range(100)),
    "b": tuple(number_words(n) for n in range(100)),
    "s": tuple(number_words(n) for n in range(11)),
    "t": tuple(number_words(n) for n in range(11)),
    "n": tuple(number_words(n) for n in range(2, 21)),
    "day": DAYS,
    "month": MONTHS,
    "shape": SHAPES,
    "shapes": tuple(f"{shape}es" if shape == "cross" else f"{shape}s" for shape in SHAPES),
    "color": COLOURS,
    "place": tuple(CITIES),
}
"""Values of each slot in speech: {a} and {b} are summands, {s} and {t} factors, {n} the end of a count."""


def user_templates() -> dict[str, tuple[str, ...]]:
    """Return every in-domain template by kind, including the openers and closers that speech may add."""
    return {kind: tuple(_wrap(kind, core) for core in cores) for kind, cores in REQUESTS.items()}


def heard_templates() -> dict[str, tuple[str, ...]]:
    """Return the templates that speech recognition must understand: ``user_templates`` and IN_CONVERSATION."""
    return user_templates() | IN_CONVERSATION


def sample_heard(rng: random.Random) -> str:
    """Return something that a user says; a third is from IN_CONVERSATION."""
    if rng.random() < 2 / 3:
        return sample_request(rng).text
    text = expand(rng, rng.choice(IN_CONVERSATION[rng.choice(list(IN_CONVERSATION))]))
    return re.sub(r"\{(\w+)\}", lambda slot: rng.choice(SLOTS[slot[1]]), text)


def spoken_vocabulary() -> frozenset[str]:
    """Return every word that an in-domain utterance can contain."""
    templates = " ".join(text for texts in user_templates().values() for text in texts)
    words = set(re.sub(r"\{\w+\}|[()|]", " ", templates).split())
    return frozenset(words.union(*(value.split() for values in SLOTS.values() for value in values)))


def sample_request(rng: random.Random, kind: str | None = None) -> Request:
    """Return a spoken in-domain request, excluding the evaluation sets and held-out pairs of numbers."""
    while True:
        chosen = kind or rng.choices(list(REQUESTS), weights=[_weight(k) for k in REQUESTS])[0]
        request = _spoken(rng, chosen, rng.choice(user_templates()[chosen]))
        if allowed(request):
            return request


def addressed(rng: random.Random, request: Request) -> Request:
    """Sometimes add further words of address to a request."""
    if request.expect["kind"] in ("repeat", "spell", "user_name", "okay") or rng.random() < 0.7:
        return request
    first, last = rng.choice(("nano", "hey", "so", "okay", "well", "")), rng.choice(("nano", "please", "then", ""))
    longer = replace(request, text=f"{first} {request.text} {last}".strip())
    return longer if allowed(longer) else request


def _wrap(kind: str, core: str) -> str:
    return f"{OPENERS} {core} {CLOSERS}" if kind in WRAPPED else core


def _weight(kind: str) -> float:
    heavy = {"calendar": 5, "times": 5, "count": 5, "repeat": 4, "minus": 4, "sum": 4, "time": 2, "date": 2, "next": 2}
    return heavy.get(kind, 1)


def _spoken(rng: random.Random, kind: str, template: str) -> Request:
    text = expand(rng, template)
    payload: dict[str, str] = {}
    for slot in re.findall(r"\{(\w+)\}", text):
        payload[slot] = _spoken_words(rng) if slot == "words" else rng.choice(SLOTS[slot])
        text = text.replace("{" + slot + "}", payload[slot])
    return Request(text, expect_of(kind, text, payload))


def _spoken_words(rng: random.Random) -> str:
    return " ".join(rng.choices(SLOTS["word"], k=rng.choice((1, 2, 2, 3, 3, 4))))


def expect_of(kind: str, text: str, payload: dict[str, str]) -> dict[str, str | int]:
    """Return the right answer to a filled template. Slots hold numbers as words or digits."""
    match kind:
        case "repeat":
            return {"kind": "repeat", "words": payload.get("words") or payload["word"]}
        case "spell":
            return {"kind": "spell", "word": payload["word"]}
        case "sum" | "minus" | "times":
            return _expect_number(kind, payload)
        case "next":
            before = " before " in f" {text} "
            n = _value(payload["a"])
            return {"kind": "number", "op": "before" if before else "after", "n": n, "value": n + (-1 if before else 1)}
        case "count":
            n = _value(payload["n"])
            down = "down" in text or "back" in text
            return {"kind": "count", "first": n if down else 1, "last": 1 if down else n}
        case "calendar":
            names = DAYS if "day" in payload else MONTHS
            origin = payload.get("day") or payload["month"]
            step = -1 if re.search(r"\b(before|precedes)\b", text) else 1
            found = names[(names.index(origin.lower()) + step) % len(names)]
            return {"kind": "calendar", "name": found, "origin": origin.lower(), "step": step}
        case "list":
            return {"kind": "list", "names": " ".join(DAYS if "week" in text else MONTHS)}
        case "howmany":
            return {"kind": "number", "op": "week" if "week" in text else "year", "value": 7 if "week" in text else 12}
        case "my_name":
            return {"kind": "user_name", "name": payload["name"]}
        case "ask_name":
            return {"kind": "name_unknown"}
        case _:
            return {"kind": kind}


def _expect_number(kind: str, payload: dict[str, str]) -> dict[str, str | int]:
    first, second = ("s", "t") if kind == "times" else ("a", "b")
    a, b = _value(payload[first]), _value(payload[second])
    value = a + b if kind == "sum" else a - b if kind == "minus" else a * b
    return {"kind": "number", "op": {"sum": "plus"}.get(kind, kind), "a": a, "b": b, "value": value}


def _value(text: str) -> int:
    return int(text) if text.isdigit() else SLOTS["a"].index(text)


def refused(rng: random.Random) -> Request:
    """Return a request beyond nano: from frames with slots, some filled with random words, or plain chatter."""
    while True:
        if rng.random() < 0.12:
            text = " ".join(rng.choices(dictionary_words(), k=rng.randint(3, 7)))
        else:
            text = expand(rng, rng.choice(REFUSED))
            text = re.sub(r"\{(topic|place|person|thing|any)\}", lambda slot: _beyond(rng, slot[1]), text)
            text = re.sub(r"\{big\}", lambda _: str(rng.randint(100, 9999)), text)
            text = re.sub(r"\{a\}", lambda _: str(rng.randint(1, 99)), text)
        request = as_typed(rng, Request(text, {"kind": "refuse"}))
        if allowed(request):
            return request


def _beyond(rng: random.Random, slot: str) -> str:
    """Return the object of a refused request: from the slot's own list, or any word."""
    if slot in _REFUSED_SLOTS and rng.random() < 0.6:
        return rng.choice(_REFUSED_SLOTS[slot])
    return rng.choice(SPOKEN_WORDS if rng.random() < 0.6 else dictionary_words())


_REFUSED_SLOTS = {"topic": TOPICS, "place": PLACES, "person": FIGURES, "thing": THINGS}


def typed_request(rng: random.Random, wanted: str | None = None) -> Request:
    """Return an in-domain request in typed form; the hard abilities with open vocabulary are more frequent."""
    while True:
        common = rng.choices(("repeat", "spell", "sum", "minus", "my_name", ""), weights=(24, 12, 12, 12, 8, 32))[0]
        kind = common if wanted is None else wanted
        if not kind:
            return as_typed(rng, sample_request(rng))
        template = rng.choice(REQUESTS[kind] + TYPED_ONLY.get(kind, ()))
        text = expand(rng, _wrap(kind, template) if rng.random() < 0.3 else template)
        payload: dict[str, str] = {}
        for slot in re.findall(r"\{(\w+)\}", text):
            payload[slot] = _typed_slot(rng, slot)
        request = Request(text, expect_of(kind, text, payload))
        styled = as_typed(rng, request)
        for slot, value in payload.items():
            styled = replace(styled, text=styled.text.replace("{" + slot + "}", value))
        if allowed(styled):
            return styled


def _typed_slot(rng: random.Random, slot: str) -> str:
    match slot:
        case "words":
            return _phrase(rng)
        case "word" | "name":
            return _cased(rng, open_word(rng) if slot == "word" or rng.random() < 0.3 else rng.choice(SPOKEN_NAMES))
        case "a" | "b" | "s" | "t":
            return str(rng.randrange(10 ** rng.choice((1, 2, 2, 2, 2, 3, 4, 6))))
        case _:
            return rng.choice(SLOTS[slot])


def _phrase(rng: random.Random) -> str:
    """Return one to eight words to repeat: dictionary words, names, letter strings, numbers; sometimes another
    request.
    """
    if rng.random() < 0.2:
        return (sample_request(rng) if rng.random() < 0.6 else refused(rng)).text
    words = [open_word(rng) for _ in range(rng.randint(1, 8))]
    if len(words) > 2 and rng.random() < 0.15:
        words[rng.randrange(len(words))] = rng.choice(words)
    if rng.random() < 0.15:
        words[rng.randrange(len(words))] = str(rng.randrange(1000))
    if len(words) > 1 and rng.random() < 0.15:
        spot = rng.randrange(len(words) - 1)
        words[spot] += ","
    text = _cased(rng, " ".join(words))
    return text + rng.choice(("", "", "", "", ".", "!", "?"))


_LITTLE = re.findall(
    r"\w+",
    "the a an i you he she it we they is are was were has have had do did not and or but if to of in on at for with by "
    "my your his her our their this that there here what who where when why how can will would should very so too no "
    "yes please go come see make take get give one two three man woman child cat dog house red big old new",
)


def open_word(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.22:
        return rng.choice(_LITTLE)
    if roll < 0.32:
        return rng.choice(SLOTS["word"])
    if roll < 0.48:
        return _letters(rng)
    while is_held_out_word(word := rng.choice(dictionary_words())):
        pass
    return word


def _letters(rng: random.Random) -> str:
    """Return letters that form no word: half of the time syllables, else random letters."""
    if rng.random() < 0.5:
        return "".join(rng.choice("bcdfghjklmnpqrstvwz") + rng.choice("aeiouy") for _ in range(rng.randint(1, 4)))
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 9)))


def _cased(rng: random.Random, text: str) -> str:
    roll = rng.random()
    if roll < 0.7:
        return text
    return text.capitalize() if roll < 0.82 else text.title() if roll < 0.94 else text.upper()


def answered(rng: random.Random, request: Request) -> Turn:
    return Turn(request, reply_to(rng, request.expect, request.text))
