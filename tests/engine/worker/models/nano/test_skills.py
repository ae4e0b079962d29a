"""Which of a client's tools nano calls, and with what: by name, type and limits of the schema, or not at all."""

# ruff: noqa: E501 - one case a line

from __future__ import annotations

from typing import Any

import pytest

from engine.core import ToolDefinition
from engine.worker.models.nano.skills import SKILLS, arguments, declared, parse, seconds, skill_of
from engine.worker.models.nano.tokens import tools_ids


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> ToolDefinition:
    return ToolDefinition(name, parameters={"type": "object", "properties": properties, "required": list(required)})


NUMBER, INTEGER, TEXT, TRUTH = ({"type": kind} for kind in ("number", "integer", "string", "boolean"))


@pytest.mark.parametrize(
    ("offered", "skills"),
    [
        (tool("set_timer", minutes=NUMBER), ["timer"]),
        (tool("startTimer", duration_seconds=INTEGER), ["timer"]),
        (tool("set-light", on=TRUTH), ["light"]),
        (tool("turn_lights", state=TEXT, room=TEXT), ["light"]),
        (tool("get_current_weather", ("location",), location=TEXT, unit=TEXT), ["weather"]),
        (tool("set_volume", level=INTEGER), ["volume"]),
        (tool("cancel_timer", timer_id=TEXT), []),
        (tool("stop_timer", minutes=NUMBER), []),
        (tool("set_light_scene", ("scene_id",), scene_id=TEXT), []),
        (tool("get_weather", ("city", "api_key"), city=TEXT, api_key=TEXT), []),
        (tool("set_timer"), []),
        (tool("transfer_money", amount=NUMBER), []),
        (ToolDefinition("set_timer", parameters={"properties": ["minutes"], "required": "minutes"}), []),
    ],
)
def test_a_tool_is_of_a_skill_by_its_name_and_what_it_takes(offered: ToolDefinition, skills: list[str]) -> None:
    assert list(declared((offered,))) == skills


def test_skills_stand_in_one_order_however_they_are_declared() -> None:
    tools = (tool("set_volume", level=INTEGER), tool("set_timer", minutes=NUMBER), tool("my_timer", minutes=NUMBER))
    assert {name: found.name for name, found in declared(tools).items()} == {
        "timer": "set_timer",
        "volume": "set_volume",
    }
    assert list(declared(tools)) == ["timer", "volume"]


@pytest.mark.parametrize(
    ("called", "offered", "filled"),
    [
        ("timer time=10 minutes", tool("set_timer", minutes=NUMBER), {"minutes": 10}),
        ("timer time=half an hour", tool("set_timer", minutes=NUMBER), {"minutes": 30}),
        ("timer time=90 seconds", tool("set_timer", minutes=NUMBER), {"minutes": 1.5}),
        ("timer time=90 seconds", tool("set_timer", minutes=INTEGER), None),
        ("timer time=10 minutes", tool("start_timer", durationSeconds=INTEGER), {"durationSeconds": 600}),
        ("timer time=2 hours", tool("set_timer", duration={"type": "number", "description": "in minutes"}), {"duration": 120}),
        ("timer time=2 hours", tool("set_timer", duration=NUMBER), None),
        ("timer time=2 hours", tool("set_timer", duration=TEXT, label=TEXT), {"duration": "2 hours"}),
        ("timer time=3 minutes", tool("set_timer", amount=INTEGER, unit={"type": "string", "enum": ["second", "minute"]}), {"amount": 3, "unit": "minute"}),
        ("timer time=999 hours", tool("set_timer", minutes={"type": "integer", "maximum": 1440}), None),
        ("light state=on", tool("set_light", on=TRUTH, color=TEXT), {"on": True}),
        ("light state=off", tool("set_light", state={"type": "string", "enum": ["ON", "OFF"]}), {"state": "OFF"}),
        ("light color=blue", tool("set_light", on=TRUTH, color=TEXT), {"color": "blue"}),
        ("light color=pink", tool("set_light", color={"type": "string", "enum": ["red"]}), None),
        ("light state=on room=living room", tool("set_light", ("room",), on=TRUTH, room=TEXT), {"on": True, "room": "living room"}),
        ("light state=on room=kitchen", tool("set_light", on=TRUTH), None),
        ("light state=on", tool("set_light", ("room",), on=TRUTH, room=TEXT), None),
        ("weather place=new york", tool("get_weather", city=TEXT, unit=TEXT), {"city": "New York"}),
        ("weather place=oslo day=on monday", tool("get_weather", city=TEXT, day=TEXT), {"city": "Oslo", "day": "monday"}),
        ("weather place=oslo day=tomorrow", tool("get_weather", city=TEXT), None),
        ("volume level=30", tool("set_volume", level=INTEGER), {"level": 30}),
        ("volume level=30", tool("set_volume", level={"type": "number", "maximum": 1}), None),
        ("volume step=up", tool("change_volume", direction={"type": "string", "enum": ["louder", "quieter"]}), {"direction": "louder"}),
        ("volume step=up", tool("set_volume", level=INTEGER), None),
        ("timer", tool("set_timer", minutes=NUMBER), None),
        ("timer time=", tool("set_timer", minutes=NUMBER), None),
        ("timer mood=good", tool("set_timer", minutes=NUMBER), None),
    ],
)  # fmt: skip
def test_a_call_is_filled_whole_or_not_made(
    called: str, offered: ToolDefinition, filled: dict[str, Any] | None
) -> None:
    name, values = parse(called)
    assert arguments(name, offered, values) == filled


@pytest.mark.parametrize(
    ("said", "length"),
    [("10 minutes", 600), ("an hour", 3600), ("an hour and a half", 5400), ("2 minutes and 5 seconds", 125),
     ("a quarter of an hour", 900), ("half a minute", 30), ("soon", None)],
)  # fmt: skip
def test_times_in_seconds(said: str, length: int | None) -> None:
    assert seconds(said) == length


def test_a_call_in_the_conversation_is_shown_as_its_skill() -> None:
    assert skill_of("startTimer") == "timer"
    assert skill_of("open_valve") == "open_valve"


def test_the_names_of_all_skills_have_their_room() -> None:
    assert 0 < len(tools_ids(skill.name for skill in SKILLS)) <= 8
    assert tools_ids(()) == []
