"""Conversations with a small real language model, and the defects that only such a model showed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import EngineSpec, StageSpec, WorkerSpec
from tests.app.rig import LoudnessVad, running, talking

pytestmark = pytest.mark.real

EMOJI = "Please write this again and again: " + "😀" * 24
QUESTIONS = ("Hello?", "Are you there?", "What is your name?", "Hello?", "And now?")
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def spec(weights: Path) -> EngineSpec:
    """The real thinker with a short context, between nano's ears and voice."""
    stages = (
        StageSpec(use="nano.ears", name="ears"),
        StageSpec(use="llm.llamacpp", name="thinker", weights=str(weights), options={"context": 512}),
        StageSpec(use="nano.talker", name="talker"),
        StageSpec(use="nano.code2wav", name="code2wav"),
    )
    worker = WorkerSpec(stages=tuple(stage.name for stage in stages), max_batch=2)
    return EngineSpec(stages=stages, workers=(worker,), launcher="inline")


async def test_a_conversation_goes_on_after_an_answer_of_emoji(smollm2: Path) -> None:
    async with running(spec(smollm2), vad=LoudnessVad) as server, talking(server) as client:
        await client.ask(EMOJI, output_modalities=["text"], max_output_tokens=400)
        later = [await client.ask(text, output_modalities=["text"], max_output_tokens=40) for text in QUESTIONS]
    assert {response["status"] for response in later} <= {"completed", "incomplete"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}], ids=["required", "named"])
async def test_a_required_call_is_made_or_refused(choice: object, smollm2: Path) -> None:
    async with running(spec(smollm2), vad=LoudnessVad) as server, talking(server) as client:
        await client.configure(tools=[WEATHER])
        options = {"tool_choice": choice, "max_output_tokens": 60, "output_modalities": ["text"]}
        response = await client.ask("What is the weather in Paris?", **options)
    called = [item for item in response["output"] if item["type"] == "function_call"]
    assert called or response["status"] == "failed"
