"""From what the thinker's network draws to a call of the client's tool, whatever weights drew it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import Chunk, Message, Request, TextPart, Tool
from engine.worker.models.nano.skills import CANNOT_TELL, NO_TOOL
from engine.worker.models.nano.thinker import (
    END,
    TOOL,
    TOOLS,
    WORD,
    Sensed,
    Thinker,
    phrase_ids,
    prompt_ids,
    text_ids,
    user_ids,
)
from engine.worker.stage import Place, Seat

TIMER = Tool("set_timer", parameters={"properties": {"minutes": {"type": "number"}}, "required": ["minutes"]})
VALVE = Tool("open_valve", parameters={"properties": {"pressure": {"type": "number"}}})
ASKED = "Set a timer for ten minutes, please!"
DRAWN = [TOOL, *text_ids("timer time="), WORD + 4, WORD + 5, END]


@pytest.fixture(scope="module")
def stage() -> Thinker:
    return Thinker(Place(slots=1))


def draw(stage: Thinker, drawn: list[int], **options: Any) -> list[Chunk]:
    """What is emitted when the network draws these ids, up to the end of what follows without it."""
    request = Request(id="r", session="s", messages=(Message("user", (TextPart(ASKED),)),), **options)
    pace: Any = None
    seat = Seat(request, 0, pace=pace)
    stage.open(seat)
    stage._begin(seat, Sensed(None, request.messages, (None,)))
    chunks = [chunk for i in drawn for chunk in stage._take(seat, i)]
    while not seat.done and seat.state.script:
        chunks += stage.step([seat])[0]  # type: ignore[operator]
    return chunks


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.data for chunk in chunks if chunk.kind == "text")


def test_words_that_are_pointed_at_become_arguments(stage: Thinker) -> None:
    call, usage = draw(stage, DRAWN, tools=(VALVE, TIMER))
    assert call.data["name"] == "set_timer"
    assert json.loads(call.data["arguments"]) == {"minutes": 10}
    assert usage.meta["finish"] == "tool"


@pytest.mark.parametrize("options", [{}, {"tools": (VALVE,)}, {"tools": (TIMER,), "tool_choice": "none"}])
def test_a_tool_that_is_not_offered_is_not_called(stage: Thinker, options: dict[str, Any]) -> None:
    chunks = draw(stage, DRAWN, **options)
    assert not [chunk for chunk in chunks if chunk.kind == "tool_call"]
    assert text_of(chunks) == NO_TOOL


@pytest.mark.parametrize("drawn", ["timer", "timer mood=bad", "timer time=soon", "open_valve pressure=3"])
def test_what_the_schema_does_not_take_is_not_called(stage: Thinker, drawn: str) -> None:
    chunks = draw(stage, [TOOL, *phrase_ids(drawn), END], tools=(TIMER, VALVE))
    assert not [chunk for chunk in chunks if chunk.kind == "tool_call"]
    assert text_of(chunks) in (CANNOT_TELL, NO_TOOL)


def test_the_prompt_names_the_skills_that_are_offered() -> None:
    messages = (Message("user", (TextPart(ASKED),)),)
    assert prompt_ids(messages, skills=("timer", "volume")) == [
        TOOLS,
        *phrase_ids("timer"),
        *phrase_ids("volume"),
        *user_ids(ASKED),
    ]
    assert prompt_ids(messages) == user_ids(ASKED)
