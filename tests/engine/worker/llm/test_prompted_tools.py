"""Function calls as plain text, for chat templates without tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chunk import Text, ToolCall, ToolCallDelta, Usage
from engine.worker.llm.deltas import Delta
from engine.worker.llm.prompted_tools import CallParser, parsed, prompted, required_functions, writes_calls_as_text

CALL = '<tool_call>\n{"name": "timer", "arguments": {"minutes": 5}}\n</tool_call>'
FOUND = ("timer", '{"minutes": 5}')
TIMER = {"name": "timer", "description": "Sets a timer.", "parameters": {"type": "object"}}
LAMP = {"name": "lamp", "description": "", "parameters": {"type": "object"}}
MADE = {"id": "c", "type": "function", "function": {"name": "timer", "arguments": '{"minutes": 5}'}}


def body(choice: Any = "auto", *messages: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": one} for one in (TIMER, LAMP)]
    said = messages or ({"role": "user", "content": "Hello"},)
    return {"messages": [{"role": "system", "content": "Be kind."}, *said], "tools": tools, "tool_choice": choice}


def test_the_functions_stand_in_the_instructions() -> None:
    asked = prompted(body())
    assert not {"tools", "tool_choice"} & asked.keys()
    assert asked["messages"][0]["content"].startswith("Be kind.\n\nYou may call functions.")
    assert '"Sets a timer."' in asked["messages"][0]["content"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", ["timer", "lamp"]), ({"type": "function", "function": {"name": "lamp"}}, ["lamp"])],
)
def test_a_required_call_is_one_of_some_functions(choice: Any, names: list[str]) -> None:
    assert [one["name"] for one in required_functions(body(choice))] == names


def test_calls_and_results_of_the_conversation_are_text() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [MADE]}
    result = {"role": "tool", "tool_call_id": "c", "content": "done"}
    messages = prompted(body("auto", called, result, {"role": "user", "content": "Thanks"}))["messages"]
    assert messages[1:] == [
        {"role": "assistant", "content": CALL},
        {"role": "user", "content": "<tool_response>\ndone\n</tool_response>\nThanks"},
    ]


@given(st.lists(st.integers(0, 120), max_size=8))
def test_calls_are_found_however_the_text_is_cut(cuts: list[int]) -> None:
    text = f"I will. {CALL}\n{CALL} So <b>be</b> it"
    bounds = [0, *sorted(cuts), len(text)]
    parser = CallParser()
    steps = [parser.feed(text[a:b]) for a, b in pairwise(bounds)] + [parser.end()]
    words = "".join(word for words, _ in steps for word in words)
    assert words.replace(" ", "") == "Iwill.So<b>be</b>it", "space around a call may be dropped"
    assert [call for _, calls in steps for call in calls] == [FOUND, FOUND]


@pytest.mark.parametrize("text", ["{", "5", '{"name": 5}', '{"name": "timer", "arguments": []}'])
def test_a_broken_call_is_neither_made_nor_said(text: str) -> None:
    parser = CallParser()
    assert parser.feed(f"<tool_call>{text}</tool_call>") == ([], [])
    assert parser.end() == ([], [])


async def test_an_answer_that_calls_ends_with_the_call() -> None:
    answer = parsed(_answer("Wait. ", CALL), body(), "r")
    said, call, usage = [delta async for delta in answer]
    assert said == Text("Wait. ", 0)
    assert call == ToolCall("call_r_0", *FOUND)
    assert usage == Usage(finish="tool")


@given(st.lists(st.integers(0, 200), max_size=12))
async def test_arguments_come_in_pieces_as_they_are_written(cuts: list[int]) -> None:
    arguments = '{"a": {"b": "} </tool_c", "c": [1]}, "d": "<" }'
    text = f'<tool_call>\n{{"name": "timer", "arguments": {arguments}}}\n</tool_call> {CALL}'
    texts = [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]
    deltas = [delta async for delta in parsed(_answer(*texts), body(), "r")]
    calls = [delta for delta in deltas if isinstance(delta, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [("timer", arguments), FOUND]
    for call in calls:
        pieces = [one.arguments for one in deltas if isinstance(one, ToolCallDelta) and one.call_id == call.call_id]
        assert "".join(pieces) in ("", call.arguments), "whole calls have no pieces"


async def test_a_piece_of_the_arguments_does_not_wait_for_the_rest() -> None:
    (delta,) = [one async for one in parsed(_answer(CALL[:52]), body(), "r") if not isinstance(one, Usage)]
    assert delta == ToolCallDelta("call_r_0", "timer", '{"minutes')


@pytest.mark.parametrize(
    ("template", "does"),
    [
        ('{% if tools %}<tool_call>{"name": …, "arguments": …}{% endif %}', True),
        ('{% if tools %}[TOOL_CALLS]{"name": …, "arguments": …}{% endif %}', False),
        ('{% if tools %}<tool_call><function=…>"arguments"{% endif %}', False),
        ('<tool_call>{"name": …, "arguments": …}', False),
    ],
)
def test_templates_whose_models_write_calls_in_this_format(template: str, does: bool) -> None:
    assert writes_calls_as_text(template) is does


async def test_no_call_is_made_where_none_is_allowed() -> None:
    assert [delta async for delta in parsed(_answer(CALL), body("none"), "r")] == [Usage()]


async def _answer(*texts: str) -> AsyncGenerator[Delta]:
    for text in texts:
        yield Text(text, 0)
    yield Usage()
