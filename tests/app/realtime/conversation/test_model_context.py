"""What a model's context can hold of text."""

from __future__ import annotations

from typing import Any

import pytest

from app.realtime.conversation.model_context import (
    check_items,
    check_settings,
    most_chars,
    most_instructions,
)
from app.realtime.protocol.items import CallItem, CallOutputItem, Item, MessageItem, MessageText
from app.realtime.protocol.options import SessionOptions, SessionTool
from app.refusal import Refusal
from engine import ModelInfo, TokenCost

MODEL = ModelInfo(name="m", context=1000, cost=TokenCost(character=0.5, instruction=0.25))
DEAF_TO_INSTRUCTIONS = ModelInfo(name="m", context=512, cost=TokenCost(character=0.6, instruction=0.0))
LARGE = ModelInfo(name="m", context=32_768)


def typed(characters: int, role: Any = "user") -> Item:
    return MessageItem(id="a", role=role, content=(MessageText("x" * characters),))


def refused(settings: SessionOptions, model: ModelInfo = MODEL) -> Refusal | None:
    try:
        check_settings(settings, model, "session")
    except Refusal as refusal:
        return refusal
    return None


def test_the_bounds_are_the_contexts_with_room() -> None:
    assert most_chars(MODEL) == 16_000
    assert most_instructions(MODEL) == 32_000
    assert 100_000 < most_instructions(DEAF_TO_INSTRUCTIONS) < 1_000_000


@pytest.mark.parametrize(
    "item",
    [
        typed(16_001),
        typed(16_001, "assistant"),
        typed(32_001, "system"),
        CallItem(id="a", call_id="c", name="n", arguments="x" * 16_000),
        CallOutputItem(id="a", call_id="c", output="x" * 16_001),
    ],
)
def test_a_text_that_no_context_holds_is_refused(item: Item) -> None:
    with pytest.raises(Refusal) as too_long:
        check_items([item], MODEL, "item")
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "item")
    assert str(too_long.value).count(".") == 1


def test_what_might_fit_is_taken_and_together_it_must_fit_too() -> None:
    check_items([typed(16_000), typed(32_000, "system")], MODEL, "item")
    with pytest.raises(Refusal):
        check_items([typed(8_001), typed(8_000)], MODEL, "item")


def test_settings_that_no_prompt_can_begin_with_are_refused() -> None:
    tool = SessionTool(name="t", description="x" * 40_000)
    for settings, param in (
        (SessionOptions(instructions="x" * 32_001), "session.instructions"),
        (SessionOptions(tools=[tool]), "session.tools"),
        (
            SessionOptions(instructions="x" * 20_000, tools=[SessionTool(name="t", description="x" * 13_000)]),
            "session.instructions",
        ),
    ):
        refusal = refused(settings)
        assert refusal is not None
        assert (refusal.code, refusal.param) == ("context_length_exceeded", param)
    assert refused(SessionOptions(instructions="x" * 32_000)) is None


def test_what_is_only_told_again_is_bounded_too() -> None:
    for settings in (SessionOptions(prompt={"id": "x" * 70_000}), SessionOptions(tracing=["x"] * 30_000)):
        refusal = refused(settings)
        assert refusal is not None
        assert refusal.code == "invalid_value"
    assert refused(SessionOptions(prompt={"id": "x" * 60_000})) is None


@pytest.mark.parametrize("model", [DEAF_TO_INSTRUCTIONS, LARGE])
def test_100_kb_of_instructions_and_twenty_tools_go_through(model: ModelInfo) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for depth in range(12):
        schema = {"type": "object", "properties": {f"level_{depth}": schema}, "required": [f"level_{depth}"]}
    tools = [SessionTool(name=f"tool_{n}", description="What it does. " * 20, parameters=schema) for n in range(20)]
    assert refused(SessionOptions(instructions="Be kind. " * 11_000, tools=tools), model) is None
