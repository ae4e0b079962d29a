"""nano's four skills with client tools: matches declared tools to skills, and builds their arguments.

The language model knows the declared skills by name and writes calls like ``timer time=10 minutes``. This module turns
such a call into a call of the client's tool, using the names, types and limits of its JSON schema. A tool that does
something else, or needs arguments that no skill can provide, is never called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from engine.core import ToolDefinition
from engine.worker.models.nano.plain import normalise

CANNOT_TELL = "I cannot do that. The tool does not take what you asked for."

_Values = Mapping[str, str]
"""Argument name to the user's words: ``{"time": "10 minutes"}``."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A kind of tool that nano can call, recognized by the words in a tool's name and properties."""

    name: str
    things: frozenset[str]
    """Nouns for a tool's name, which must contain one of them."""
    verbs: frozenset[str]
    """Other words that the tool's name may contain."""
    slots: Mapping[str, frozenset[str]]
    """Values that the model can fill in, each with the words that identify a matching property."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNITS = _words("unit units")
_CLOCK = _words("seconds second minutes minute hours hour sec secs min mins")
SKILLS = (
    Skill(
        "timer",
        _words("timer timers countdown"),
        _words("set start create add make new a the for kitchen"),
        {"time": _words("time duration length amount value") | _CLOCK, "unit": _UNITS},
    ),
    Skill(
        "light",
        _words("light lights lamp lamps bulb lighting"),
        _words("set turn switch control change update toggle state color colour the a smart room home"),
        {
            "state": _words("state on power status action mode command switch enabled value"),
            "color": _words("color colour"),
            "room": _words("room location area where place lamp light name device zone"),
        },
    ),
    Skill(
        "weather",
        _words("weather forecast"),
        _words("get current check show fetch lookup look up find the in for at city report today local now"),
        {"place": _words("city location place town where q query region"), "day": _words("day date when")},
    ),
    Skill(
        "volume",
        _words("volume loudness"),
        _words("set change adjust control update turn the audio sound speaker output"),
        {
            "level": _words("level volume percent percentage value amount loudness"),
            "step": _words("direction change action step adjustment up"),
        },
    ),
)


def declared(tools: Sequence[ToolDefinition]) -> dict[str, ToolDefinition]:
    """Return the tool of each skill that the client has declared, in the order of SKILLS."""
    found: dict[str, ToolDefinition] = {}
    for skill in SKILLS:
        fitting = [tool for tool in tools if _is(skill, tool)]
        if fitting:
            found[skill.name] = fitting[0]
    return found


def known(tools: Sequence[ToolDefinition], own: Collection[str]) -> bool:
    """Return whether nano can call any of the tools, as a skill or in place of one of its ``own`` tools."""
    return bool(declared(tools)) or any(tool.name in own for tool in tools)


def skill_of(tool_name: str) -> str:
    """Return the skill that a tool's name belongs to, or the name itself; used to show past calls to the model."""
    return next((skill.name for skill in SKILLS if _named(skill, tool_name)), tool_name)


def parse(call: str) -> tuple[str, dict[str, str]]:
    """Parse a call: ``timer time=10 minutes`` gives ("timer", {"time": "10 minutes"})."""
    name, *rest = re.split(r"\s+(?=\w+=)", call.strip())
    pairs = (part.split("=", 1) for part in rest)
    return name, {slot: normalise(value) for slot, value in pairs}


def arguments(skill_name: str, tool: ToolDefinition, values: _Values) -> dict[str, Any] | None:
    """Return the tool's arguments.

    Returns None if a required argument is missing, or if the tool does not accept all of the values.
    """
    skill = next(skill for skill in SKILLS if skill.name == skill_name)
    if not values or any(slot not in skill.slots for slot in values):
        return None
    made: dict[str, Any] = {}
    used: set[str] = set()
    beside = any(_split(name) & _UNITS for name in _properties(tool))
    for name, schema in _properties(tool).items():
        slot = _slot(skill, name, values)
        value = _value(slot, name, schema, values, beside) if slot else None
        if value is not None:
            made[name] = value
            used.add("time" if slot == "unit" else cast(str, slot))
    return made if used == set(values) and _required(tool) <= set(made) else None


def _is(skill: Skill, tool: ToolDefinition) -> bool:
    names = _properties(tool)
    takes = [name for name in names if any(_split(name) & taken for taken in skill.slots.values())]
    return _named(skill, tool.name) and bool(takes) and _required(tool) <= set(takes)


def _named(skill: Skill, name: str) -> bool:
    words = _split(name)
    return bool(words & skill.things) and words <= skill.things | skill.verbs


def _split(name: str) -> frozenset[str]:
    """Split a name into words: setTimer, set_timer and set-timer give {"set", "timer"}."""
    return frozenset(re.findall("[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))


def _properties(tool: ToolDefinition) -> dict[str, dict[str, Any]]:
    found: Any = tool.parameters.get("properties")
    if not isinstance(found, dict):
        return {}
    items = cast("dict[str, Any]", found)
    return {name: cast("dict[str, Any]", schema) for name, schema in items.items() if isinstance(schema, dict)}


def _required(tool: ToolDefinition) -> set[str]:
    found: Any = tool.parameters.get("required")
    return {str(name) for name in cast("list[Any]", found)} if isinstance(found, list) else set()


def _slot(skill: Skill, name: str, values: _Values) -> str | None:
    """Return the value that fills a property, matched by the words in the property's name."""
    said = [*values, *(["unit"] if "time" in values and "unit" in skill.slots else [])]
    fitting = [slot for slot in said if _split(name) & skill.slots[slot]]
    return fitting[-1] if fitting else None


def _value(slot: str, name: str, schema: Mapping[str, Any], values: _Values, beside: bool) -> Any:
    """Convert a value to the schema's type; None if that is impossible."""
    kind, allowed = schema.get("type", "string"), schema.get("enum")
    match slot:
        case "time":
            value = _duration(values["time"], name, schema, beside)
        case "unit":
            value = next((_like(word, allowed) for word in values["time"].split() if word[:3] in _SECONDS), None)
        case "state" if kind == "boolean":
            value = values["state"] == "on"
        case "level" if kind in ("number", "integer"):
            value = _number(values["level"])
        case "place":
            value = values["place"].title() if kind == "string" else None
        case "step":
            up = values["step"] == "up"
            value = _like(
                ("up", "louder", "increase", "raise") if up else ("down", "quieter", "decrease", "lower"), allowed
            )
        case _:
            value = values[slot].removeprefix("on ").removeprefix("the ") if kind == "string" else None
    return _within(value, schema, allowed)


def _like(wanted: str | Sequence[str], allowed: Any) -> str | None:
    """Return the enumerated value with the same meaning, or the first wanted word if there is no enumeration."""
    words = (wanted,) if isinstance(wanted, str) else wanted
    if not isinstance(allowed, list):
        return words[0]
    stems = [word.rstrip("s") for word in words]
    return next((a for a in map(str, cast("list[Any]", allowed)) if a.lower().rstrip("s") in stems), None)


def _within(value: Any, schema: Mapping[str, Any], allowed: Any) -> Any:
    if isinstance(value, str) and isinstance(allowed, list):
        return next((a for a in cast("list[Any]", allowed) if str(a).lower() == value.lower()), None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    low, high = _bound(schema, "minimum", value), _bound(schema, "maximum", value)
    return value if low <= value <= high else None


def _bound(schema: Mapping[str, Any], name: str, value: float) -> float:
    """Return a limit of the client's schema; an invalid limit is ignored."""
    bound = schema.get(name)
    return bound if isinstance(bound, int | float) and not isinstance(bound, bool) else value


_SECONDS = {"sec": 1, "min": 60, "hou": 3600}


def seconds(time: str) -> int | None:
    """Convert a duration to seconds, such as "half an hour" or "2 minutes and 5 seconds"."""
    if "quarter of an hour" in time:
        return 900
    total, number, last, half = 0.0, 1.0, 0, False
    for word in time.split():
        if word.isdigit():
            number = float(word)
        elif word == "half":
            half = True
        elif unit := _SECONDS.get(word[:3]):
            total += unit * (0.5 if half else number)
            number, last, half = 1.0, unit, False
    total += last / 2 if half else 0
    return round(total) or None


def _duration(time: str, name: str, schema: Mapping[str, Any], beside: bool) -> Any:
    """Convert a duration to the unit named by the property or its description.

    ``beside``: the tool has a separate property for the unit, so the number stays as spoken.
    """
    kind = schema.get("type", "string")
    if beside:
        said = re.fullmatch(r"(\d+) [a-z]+", time)
        return int(said[1]) if said else None
    if kind == "string":
        return time
    total = seconds(time)
    units = _split(name) & _CLOCK or _split(str(schema.get("description", ""))) & _CLOCK
    unit = _SECONDS[next(iter(units))[:3]] if len(units) == 1 else 0
    if total is None or not unit:
        return None
    exact = total / unit
    return int(exact) if exact == int(exact) else exact if kind == "number" else None


def _number(word: str) -> int | None:
    found = re.search(r"\d+", word)
    return int(found[0]) if found else None
