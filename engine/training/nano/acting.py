"""Samples conversations with tools: calls with arguments, results, missing arguments, and requests without a matching
tool.

A call has the form that ``engine/worker/models/nano/skills.py`` parses: the skill, then ``slot= words``, where the
words point to the user's words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from engine.training.nano.answers import Reply, pointed
from engine.training.nano.follow_frames import CITIES
from engine.training.nano.lexicon import DAYS, SPOKEN_WORDS
from engine.training.nano.requests import open_word, sample_request
from engine.training.nano.tool_frames import (
    BACK,
    BAD,
    DAY_WEATHER,
    FINE,
    GIVEN,
    LEFT_OUT,
    LEVEL,
    LIT,
    NAMES,
    ON_OFF,
    ONCE_MORE,
    ROOM_ON_OFF,
    ROOMS,
    STEP,
    TIMER,
    UNKNOWN_TOOLS,
    WEATHER,
)
from engine.training.nano.turns import Dialogue, Request, Turn, allowed, as_typed, dressed, expand, saying
from engine.worker.models.nano.sayings import NO_TOOL
from engine.worker.models.nano.scene import COLOURS


def declared(rng: random.Random) -> tuple[str, ...]:
    """Return some skills in their fixed order."""
    chosen = set(rng.sample(NAMES, rng.choice((1, 1, 2, 2, 3, 4))))
    return tuple(name for name in NAMES if name in chosen)


def clock_dialogue(rng: random.Random) -> Dialogue:
    """Ask for the time or date with a client's own tool, which may return anything."""
    kind = rng.choice(("time", "date"))
    request = as_typed(rng, sample_request(rng, kind))
    clock, day = f"{rng.randrange(24)}:{rng.randrange(60):02}", f"{rng.choice(DAYS)} {rng.randint(1, 31)}"
    result = rng.choice((clock, day, open_word(rng)))
    return (Turn(request, Reply(call="tell"), called=f"get_{kind}", result=result),)


def acting_dialogue(rng: random.Random, other: Callable[[], Turn], given: tuple[str, ...] | None = None) -> Dialogue:
    """Return one to four turns with declared tools (``given``), with or without the requested one."""
    tools = given if given is not None else declared(rng) if rng.random() < 0.85 else ()
    name = rng.choice(tools) if tools and rng.random() < 0.85 else rng.choice(NAMES)
    if rng.random() < 0.08:
        turns: Dialogue = (_unknown(rng),)
    elif name not in tools:
        turns = (*(() if rng.random() < 0.8 else (other(),)), _refused(rng, name))
    else:
        turns = _calls(rng, name, other)
    return tuple(replace(turn, tools=tools) for turn in turns)


def _calls(rng: random.Random, name: str, other: Callable[[], Turn]) -> Dialogue:
    """Return calls with their results, possibly after a question for a missing argument. The last call may be open."""
    turns: Dialogue = () if rng.random() < 0.8 else (other(),)
    if rng.random() < 0.3:
        frames, question = LEFT_OUT[name]
        turns += (saying(_filled(rng, frames, {}), question),)
        call, slots = _call(rng, name, GIVEN[name])
    else:
        call, slots = _request(rng, name)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        turns += (_returned(rng, call, name),)
        if rng.random() < 0.2:
            turns += (other(),)
            call, slots = _request(rng, name)
        elif name == "light" and rng.random() < 0.4:
            call, slots = _call(rng, name, BACK)
        elif name == "volume" and rng.random() < 0.5:
            call, slots = _request(rng, name)
        else:
            call, slots = _call(rng, name, ONCE_MORE[name], slots)
    return (*turns, call if rng.random() < 0.7 else _returned(rng, call, name))


def _returned(rng: random.Random, call: Turn, name: str) -> Turn:
    """Return the call with its result, and the answer about it."""
    called = call.reply.call
    if rng.random() < 0.12:
        text = rng.choice(BAD).replace("{x}", rng.choice(SPOKEN_WORDS))
        return replace(call, called=called, result=text, reply=Reply("That did not work."))
    if name != "weather":
        return replace(call, called=called, result=rng.choice(FINE), reply=Reply("Done."))
    sky = rng.choice(
        ("sunny", "cloudy", "rain", "light rain", "snow", "clear", "fog", "windy", "storm", rng.choice(SPOKEN_WORDS))
    )
    degrees = str(rng.randint(-15, 40))
    forms = (
        f"{sky} {degrees}",
        f"{degrees} {sky}",
        f"{sky}, {degrees} degrees",
        f"{sky}",
        f"{degrees} C, {sky}",
        f"{degrees}.{rng.randrange(10)}, {sky}, {rng.randrange(100)}",
    )
    return replace(call, called=called, result=rng.choice(forms), reply=Reply(call="tell"))


def _request(rng: random.Random, name: str) -> tuple[Turn, dict[str, str]]:
    match name:
        case "timer":
            return _call(rng, name, TIMER)
        case "light":
            return _call(rng, name, rng.choice((ON_OFF, ON_OFF, ROOM_ON_OFF, LIT)))
        case "weather":
            return _call(rng, name, WEATHER if rng.random() < 0.7 else DAY_WEATHER)
        case _:
            if rng.random() < 0.5:
                return _call(rng, name, LEVEL)
            step = rng.choice(tuple(STEP))
            text = _filled(rng, STEP[step], {})
            return _turn(text, f"volume step= {step}", {"step": step}), {}


def _call(
    rng: random.Random, name: str, frames: tuple[str, ...], old: dict[str, str] | None = None
) -> tuple[Turn, dict[str, str]]:
    """Return a turn that fills one of the frames, and its slots; ``old`` are the slots of the previous call."""
    while True:
        template = expand(rng, rng.choice(frames))
        used = re.findall(r"\{(\w+)\}", template)
        slots = {slot: _value(rng, slot) for slot in used if not slot.startswith("old")}
        before = {f"old{slot}": value for slot, value in (old or {}).items()}
        if all(slot in slots or slot in before for slot in used):
            break
    text = _filled(rng, (template,), slots | before)
    call = name
    for slot in ("time", "state", "color", "room", "place", "day", "level"):
        if slot in slots:
            call += f" {slot}= {slots[slot] if slot == 'state' else pointed(text, slots[slot])}"
    return _turn(text, call, slots), slots


def _turn(text: str, call: str, slots: dict[str, str]) -> Turn:
    """Return an open call, which is right if its name and arguments are right."""
    expect = {"kind": "call", "name": call.split()[0], **slots}
    return Turn(Request(text, expect), Reply(call=call))


def _value(rng: random.Random, slot: str) -> str:
    match slot:
        case "time":
            return _time(rng)
        case "state":
            return rng.choice(("on", "off"))
        case "color":
            return rng.choice(COLOURS)
        case "room":
            return rng.choice(ROOMS) if rng.random() < 0.8 else rng.choice(SPOKEN_WORDS)
        case "place":
            city = rng.choice(CITIES) if rng.random() < 0.6 else rng.choice(SPOKEN_WORDS)
            return (
                city if rng.random() < 0.8 else rng.choice(("new", "san", "los", "saint", "north", "cape")) + " " + city
            )
        case "day":
            return rng.choice(("tomorrow", "today", "tonight", f"on {rng.choice(DAYS)}", f"on {rng.choice(DAYS)}"))
        case _:
            return str(rng.randint(0, 100))


def _time(rng: random.Random) -> str:
    unit = rng.choice(("second", "minute", "minute", "hour"))
    roll = rng.random()
    if roll < 0.12:
        return rng.choice(
            ("an hour", "a minute", "half an hour", "a second", "an hour and a half", "a quarter of an hour")
        )
    if roll < 0.2:
        return f"{rng.randint(2, 10)} minutes and {rng.randint(2, 59)} seconds"
    n = rng.randint(1, 99)
    return f"{n} {unit}{'s' if n > 1 and rng.random() < 0.93 else ''}"


def _refused(rng: random.Random, name: str) -> Turn:
    """Return a request for an undeclared skill, complete or not."""
    whole = rng.random() > 0.25
    text = _request(rng, name)[0].request.text if whole else _filled(rng, LEFT_OUT[name][0], {})
    return Turn(Request(text, {"kind": "refuse"}), Reply(NO_TOOL))


def _unknown(rng: random.Random) -> Turn:
    """Return a request that is similar to a skill but matches none."""
    return Turn(
        Request(_filled(rng, UNKNOWN_TOOLS, {"n": str(rng.randint(1, 12))}), {"kind": "refuse"}), Reply(NO_TOOL)
    )


def _filled(rng: random.Random, frames: tuple[str, ...], slots: dict[str, str]) -> str:
    while True:
        text = dressed(rng, expand(rng, rng.choice(frames)))
        for slot, value in slots.items():
            text = text.replace("{" + slot + "}", value)
        text = " ".join(text.split())
        if allowed(Request(text, {"kind": "call"})):
            return as_typed(rng, Request(text, {"kind": "call"})).text
