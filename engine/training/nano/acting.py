"""Samples conversations with tools: calls with arguments, what they return, what a request leaves out, and requests
whose tool nobody declared.

A call is written as ``engine/worker/models/nano/skills.py`` reads it: the skill, then ``slot=words``; the words are
those of the user, pointed at. It knows no schema and no token.
"""

# ruff: noqa: E501 - one template a line

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from engine.training.nano.answers import WORD
from engine.training.nano.lexicon import DAYS, SPOKEN_WORDS
from engine.training.nano.remembering import CITIES
from engine.training.nano.seeing import COLOURS
from engine.training.nano.turns import Dialogue, Request, Turn, allowed, as_typed, expand, saying
from engine.worker.models.nano.skills import NO_TOOL, SKILLS
from engine.worker.plain import normalise

_ASK = "(please |can you |could you |can you please |would you |nano ||||)"
_NO = "(no|sorry|no sorry|no no|oh no|wait no||)"

TIMER = (
    f"{_ASK}(set|start|make|create) (a|the|me a|another) timer (for|of) {{time}} (please|nano|)", f"{_ASK}(set|start) (a|the) {{time}} timer",
    "timer (for |){time}", "{time} timer (please|)", f"{_ASK}(time|count) {{time}} (for me|)", "i need a timer (for|of) {time}",
    "(can i have|give me) a (timer of {time}|{time} timer)", f"{_ASK}let me know (when|after) {{time}} (are over|have passed|)", "tell me when {time} (are over|have passed)",
)  # fmt: skip
ON_OFF = (
    f"{_ASK}(turn|switch) {{state}} (the|my|all the|) (light|lights|lamp|lamps)", f"{_ASK}(turn|switch|put) (the|my|all) (light|lights|lamp) {{state}}",
    "(light|lights|lamp) {state} (please|now|)", f"{_ASK}(turn|switch) it {{state}} again",
)  # fmt: skip
ROOM_ON_OFF = (
    f"{_ASK}(turn|switch) {{state}} the (light|lights|lamp) in (the|my) {{room}}", f"{_ASK}(turn|switch) {{state}} (the|my) {{room}} (light|lights|lamp)",
    f"{_ASK}(turn|switch|put) the (light|lights) in the {{room}} {{state}}", f"{_ASK}(turn|switch) the {{room}} (light|lights|lamp) {{state}}", "{room} (light|lights) {state}",
)  # fmt: skip
LIT = (
    f"{_ASK}(make|turn|set|change|switch) (the|my) (light|lights|lamp) (to |){{color}}", "{color} (light|lights) (please|)", "(i want|i would like|give me) {color} light",
    f"{_ASK}(set|change) the (color|colour) of the (light|lights|lamp) to {{color}}",
)  # fmt: skip
WEATHER = (
    "(what is|how is|nano what is|tell me|and how is) the weather (like |)in {place}", "(the |)weather (in|for) {place} (please|)", "(will|does|is) it (rain|raining|snow|cold|warm|hot|sunny|windy|going to rain) in {place}",
    "what is the (forecast|temperature) (for|in) {place}", "how (cold|warm|hot|windy|sunny) is it in {place}", f"{_ASK}(check|get|tell me|show me) the (weather|forecast) (in|for) {{place}}", "(do i need|should i take) an umbrella in {place}",
)  # fmt: skip
DAY_WEATHER = (
    "(what is|how is|how will) the weather (be |like |)in {place} {day}", "(will it rain|will it snow|is it cold|will it be sunny|is it going to rain) in {place} {day}", "what is the (forecast|weather) for {place} {day}",
    f"{_ASK}(check|get|tell me) the (weather|forecast) for {{place}} {{day}}", "what (is|will) the weather (be |)(for |){day} in {place}",
)  # fmt: skip
LEVEL = (
    f"{_ASK}(set|turn|change|put) (the|your) (volume|sound) (to|at) {{level}} (percent|please|)", "volume (to |at |){level} (percent|please|)", f"{_ASK}(make|set) (it|the volume) {{level}} percent",
)  # fmt: skip
STEP = {
    "up": (f"{_ASK}(turn|put) (the|your) (volume|sound) up (a bit|a little|please|)", f"{_ASK}(turn|put) up (the|your) (volume|sound)", "(a bit |a little |much |)louder (please|)", f"{_ASK}(speak|talk|be) (louder|up)", "(make it|i want it) louder", "volume up (please|)", "you are too quiet"),
    "down": (f"{_ASK}(turn|put) (the|your) (volume|sound) down (a bit|a little|please|)", f"{_ASK}(turn|put) down (the|your) (volume|sound)", "(a bit |a little |much |)(quieter|softer) (please|)", f"{_ASK}(speak|talk|be) (quieter|softer|more quietly)", "(make it|i want it) (quieter|softer)", "volume down (please|)", "you are too loud"),
}  # fmt: skip

LEFT_OUT: dict[str, tuple[tuple[str, ...], str]] = {
    "timer": ((f"{_ASK}(set|start|make) (a|the|me a) timer (please|for me|)", "(i need|give me) a timer", "timer please", "a timer"), "For how long?"),
    "weather": (("(what is|how is|tell me) the weather (like |)(today|now|please|)", "(will it|does it) rain (today|)", "is it (cold|warm) (outside|today)", "the weather (please|)", "(what is|tell me) the forecast"), "In which city?"),
    "volume": ((f"{_ASK}(set|change|adjust) (the|your) (volume|sound)", "the volume (please|)", f"{_ASK}change how loud you are"), "To which level?"),
    "light": ((f"{_ASK}(change|set) the (color|colour) of the (light|lights|lamp)", f"{_ASK}change the (light|lamp) (color|colour)", f"{_ASK}(make|give) the light (another|a different) (color|colour)"), "Which color?"),
}  # fmt: skip
GIVEN = {
    "timer": ("{time}", "for {time}", "{time} please", "(make it|let us say|say about|i think|well|maybe) {time}", "for {time} please", "{time} should do"),
    "weather": ("{place}", "in {place}", "{place} please", "(for|i mean|well|here in) {place}", "(i live in|i am in) {place}"),
    "volume": ("{level}", "(to |at ){level} (percent|please|)", "{level} percent", "(make it|set it to) {level}"),
    "light": ("{color}", "{color} please", "(to |make it |i like |let us take |maybe ){color}"),
}  # fmt: skip
ONCE_MORE = {
    "timer": (f"{_NO} (i meant|i said|make it|make that|i mean|it should be) {{time}}", f"{_NO} {{time}}", f"{_NO} not {{oldtime}} (but|) {{time}}", f"{_NO} {{time}} not {{oldtime}}", "(and |)another (one |)for {time}", "(and one|and another) (for|of) {time}", "and {time}"),
    "weather": ("(and|and|what about|how about|and what about) (in |){place}", f"{_NO} (i meant|i said|i mean) (in |){{place}}", f"{_NO} in {{place}}", f"{_NO} not {{oldplace}} (but |){{place}}", f"{_NO} {{place}} not {{oldplace}}", "(now|also|then) {place}"),
    "volume": ("(no|and now|now|sorry) (to |){level} (percent|)", f"{_NO} (i meant|i said|make it) {{level}}"),
    "light": (f"{_NO} (i meant|i said|make it|i want it) {{color}}", "(no|sorry|and now|now|and) {color}", f"{_NO} (make|turn) (it|them) {{color}}", f"{_NO} {{color}} (please|)"),
}  # fmt: skip
BACK = ("(and |)(now |)(turn|switch) (it|them) {state} (again|please|)", f"{_NO} (i meant|i said) {{state}}", "(no|sorry|and now|now|and) {state} (again|please|)")

UNKNOWN_TOOLS = (
    f"{_ASK}(cancel|stop|pause|delete) (the|my|that) timer", f"{_ASK}(set|make) an alarm for (7|8|6|half past 6|{{n}}) (in the morning|tomorrow|)", "how much time is left on (the|my) timer", f"{_ASK}dim the (light|lights|lamp)",
    f"{_ASK}(turn|switch) (on|off|up|down) the (heating|television|radio|fan|oven|music)", f"{_ASK}(play|stop|pause) the (music|song|radio)", f"{_ASK}(open|close|lock) the (door|window|garage|blinds)",
)  # fmt: skip

FINE = ("ok", "done", "true", "success", "ok true", "on", "off", "set", "started", "0", "completed", "timer set", "light on", "")
BAD = ("error {x}", "failed {x}", "error", "error not found", "failed: {x} is offline", "timeout", "error timeout", "not found", "unavailable", "error no connection")
ROOMS = ("kitchen", "bedroom", "bathroom", "hallway", "garage", "garden", "office", "living room", "dining room", "basement", "attic", "hall", "study", "cellar")
NAMES = tuple(skill.name for skill in SKILLS)


def declared(rng: random.Random) -> tuple[str, ...]:
    """Some skills, in the order in which they always stand."""
    chosen = set(rng.sample(NAMES, rng.choice((1, 1, 2, 2, 3, 4))))
    return tuple(name for name in NAMES if name in chosen)


def acting_dialogue(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """One to four turns with tools declared, the one that is asked for among them or not."""
    tools = declared(rng) if rng.random() < 0.85 else ()
    name = rng.choice(tools) if tools and rng.random() < 0.85 else rng.choice(NAMES)
    if rng.random() < 0.08:
        turns: Dialogue = (_unknown(rng),)
    elif name not in tools:
        turns = (*(() if rng.random() < 0.8 else (other(),)), _refused(rng, name))
    else:
        turns = _calls(rng, name, other)
    return tuple(replace(turn, tools=tools) for turn in turns)


def _calls(rng: random.Random, name: str, other: Callable[[], Turn]) -> Dialogue:
    """Perhaps a question back; calls with their results, of which the last may be open."""
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
    """The call given back with its result, which is told."""
    roll = rng.random()
    if roll < 0.12:
        text = rng.choice(BAD).replace("{x}", rng.choice(SPOKEN_WORDS))
        return replace(call, result=text, answer="That did not work.")
    if name != "weather":
        text = rng.choice(FINE)
        return replace(call, result=text, answer="Done.")
    sky = rng.choice(("sunny", "cloudy", "rain", "light rain", "snow", "clear", "fog", "windy", "storm", rng.choice(SPOKEN_WORDS)))
    degrees = str(rng.randint(-15, 40))
    forms = (f"{sky} {degrees}", f"{degrees} {sky}", f"{sky}, {degrees} degrees", f"{sky}", f"{degrees} C, {sky}", f"{degrees}.{rng.randrange(10)}, {sky}, {rng.randrange(100)}")
    text = rng.choice(forms)
    return replace(call, result=text, answer=f"The weather: {text}.")


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
            return _turn(text, f"volume step={step}", {"step": step}), {}


def _call(rng: random.Random, name: str, frames: tuple[str, ...], old: dict[str, str] | None = None) -> tuple[Turn, dict[str, str]]:
    """A turn that fills one of the frames, and the call; ``old`` are the words of the call before."""
    while True:
        template = expand(rng, rng.choice(frames))
        used = re.findall(r"\{(\w+)\}", template)
        slots = {slot: _value(rng, slot) for slot in used if not slot.startswith("old")}
        before = {f"old{slot}": value for slot, value in (old or {}).items()}
        if all(slot in slots or slot in before for slot in used):
            break
    text = _filled(rng, (template,), slots | before)
    words = normalise(text).split()
    call = name
    for slot in ("time", "state", "color", "room", "place", "day", "level"):
        if slot in slots:
            call += f" {slot}={slots[slot] if slot == 'state' else _pointed(words, slots[slot])}"
    return _turn(text, call, slots), slots


def _pointed(words: list[str], value: str) -> str:
    """The marks of the words that are the value; of several places the last ("not five, six minutes")."""
    wanted = normalise(value).split()
    starts = [i for i in range(len(words)) if words[i : i + len(wanted)] == wanted]
    return "".join(chr(WORD + i) for i in range(starts[0], starts[0] + len(wanted)))


def _turn(text: str, call: str, slots: dict[str, str]) -> Turn:
    """An open call: what is right is its name and its arguments."""
    expect = {"kind": "call", "name": call.split()[0], **slots}
    return Turn(Request(text, expect), "", tool=call)


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
            return city if rng.random() < 0.8 else rng.choice(("new", "san", "los", "saint", "north", "cape")) + " " + city
        case "day":
            return rng.choice(("tomorrow", "today", "tonight", f"on {rng.choice(DAYS)}", f"on {rng.choice(DAYS)}"))
        case _:
            return str(rng.randint(0, 100))


def _time(rng: random.Random) -> str:
    unit = rng.choice(("second", "minute", "minute", "hour"))
    roll = rng.random()
    if roll < 0.12:
        return rng.choice(("an hour", "a minute", "half an hour", "a second", "an hour and a half", "a quarter of an hour"))
    if roll < 0.2:
        return f"{rng.randint(2, 10)} minutes and {rng.randint(2, 59)} seconds"
    n = rng.randint(1, 99)
    return f"{n} {unit}{'s' if n > 1 and rng.random() < 0.93 else ''}"


def _refused(rng: random.Random, name: str) -> Turn:
    """A request for a skill that nobody declared, whole or not."""
    if rng.random() < 0.25:
        text = _filled(rng, LEFT_OUT[name][0], {})
    else:
        text = _request(rng, name)[0].request.text
    return Turn(Request(text, {"kind": "refuse"}), NO_TOOL)


def _unknown(rng: random.Random) -> Turn:
    """Something that none of the skills does, however near."""
    return Turn(Request(_filled(rng, UNKNOWN_TOOLS, {"n": str(rng.randint(1, 12))}), {"kind": "refuse"}), NO_TOOL)


def _filled(rng: random.Random, frames: tuple[str, ...], slots: dict[str, str]) -> str:
    while True:
        text = expand(rng, rng.choice(frames))
        for slot, value in slots.items():
            text = text.replace("{" + slot + "}", value)
        text = " ".join(text.split())
        if allowed(Request(text, {"kind": "call"})):
            return as_typed(rng, Request(text, {"kind": "call"})).text
