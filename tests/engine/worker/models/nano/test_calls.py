"""From what the thinker's network draws to a call of the client's tool, whatever weights drew it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from engine.chunk import Chunk, Text, ToolCall, Usage
from engine.core import Message, Request, TextPart, ToolDefinition
from engine.worker.models.nano.sayings import NO_TOOL
from engine.worker.models.nano.skills import CANNOT_TELL
from engine.worker.models.nano.thinker import Sensed, Thinker
from engine.worker.models.nano.tokens import END, call_ids
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

TIMER = ToolDefinition("set_timer", parameters={"properties": {"minutes": {"type": "number"}}, "required": ["minutes"]})
VALVE = ToolDefinition("open_valve", parameters={"properties": {"pressure": {"type": "number"}}})
ASKED = "Set a timer for ten minutes, please!"
DRAWN = [*call_ids("timer time= \ue004 \ue005"), END]


@pytest.fixture(scope="module")
def stage() -> Thinker:
    return Thinker(StageConfig(slots=1))


def draw(stage: Thinker, drawn: list[int], **options: Any) -> list[Chunk]:
    """What is emitted when the network draws these ids, up to the end of what follows without it."""
    request = Request(id="r", session="s", messages=(Message("user", (TextPart(ASKED),)),), **options)
    pace: Any = None
    req = StageRequest(request, 0, pace=pace)
    stage.open(req)
    stage._begin(req, Sensed(None, request.messages, ()))
    chunks: list[Chunk] = [chunk for i in drawn for chunk in cast("list[Chunk]", stage._take(req, i))]
    while not req.done and req.state.script:
        chunks += stage.step([req])[0]  # type: ignore[operator]
    return chunks


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


def test_words_that_are_pointed_at_become_arguments(stage: Thinker) -> None:
    call, usage = draw(stage, DRAWN, tools=(VALVE, TIMER))
    assert isinstance(call, ToolCall)
    assert call.name == "set_timer"
    assert json.loads(call.arguments) == {"minutes": 10}
    assert isinstance(usage, Usage)
    assert usage.finish == "tool"


@pytest.mark.parametrize("options", [{}, {"tools": (VALVE,)}, {"tools": (TIMER,), "tool_choice": "none"}])
def test_a_tool_that_is_not_offered_is_not_called(stage: Thinker, options: dict[str, Any]) -> None:
    chunks = draw(stage, DRAWN, **options)
    assert not [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    assert text_of(chunks) == NO_TOOL


@pytest.mark.parametrize("drawn", ["timer", "timer state= on", "timer time= \ue000", "weather place= \ue004"])
def test_what_the_schema_does_not_take_is_not_called(stage: Thinker, drawn: str) -> None:
    chunks = draw(stage, [*call_ids(drawn), END], tools=(TIMER, VALVE))
    assert not [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    assert text_of(chunks) in (CANNOT_TELL, NO_TOOL)


def test_nanos_own_tools_answer_in_words(stage: Thinker) -> None:
    chunks = draw(stage, [*call_ids("spell \ue002"), END])
    assert text_of(chunks) == "t, i, m, e, r"
    ids = [i for chunk in chunks if isinstance(chunk, Text) for i in chunk.token_ids]
    assert ids == [*call_ids("spell \ue002"), END]
