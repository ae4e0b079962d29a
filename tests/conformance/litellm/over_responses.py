"""LiteLLM's SDK at ``/v1/responses``."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it downloads prices when it is imported

import litellm
import part

litellm.telemetry = False

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def play(task: part.Task) -> part.Report:
    where = {"model": "openai/gpt-4o", "api_base": f"http://{task.base}/v1", "api_key": "sk-none"}
    return await SCENARIOS[task.scenario](where)


async def response(where: dict[str, str]) -> part.Report:
    whole = await litellm.aresponses(input=part.PHRASE, **where)
    stream = await litellm.aresponses(input=part.PHRASE, stream=True, **where)
    pieces = [event.delta async for event in stream if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text, pieces
    assert whole.usage.total_tokens > 0
    return part.Report(transcript=whole.output_text)


async def tool(where: dict[str, str]) -> part.Report:
    asked = await litellm.aresponses(input=part.TOOL_CALL, tools=[TOOL], **where)
    (call,) = asked.output
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny in Oslo"}
    told = await litellm.aresponses(input=[result], tools=[TOOL], previous_response_id=asked.id, **where)
    return part.Report(
        transcript=told.output_text, call={"name": call.name, "arguments": json.loads(call.arguments)}
    )  # fmt: skip


async def following(where: dict[str, str]) -> part.Report:
    """A second turn by the name that it gives to a response, and one in the shape of a chat, which it translates."""
    first = await litellm.aresponses(input=part.PHRASE, **where)
    second = await litellm.aresponses(input=part.RECALL, previous_response_id=first.id, **where)
    messages = [
        {"role": "user", "content": part.PHRASE},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": part.RECALL},
    ]
    bridged = await litellm.acompletion(messages=messages, **{**where, "model": "openai/responses/gpt-4o"})
    assert bridged.choices[0].message.content == second.output_text, bridged
    return part.Report(transcript=second.output_text)


SCENARIOS = {"response": response, "response_tool": tool, "response_next": following}

part.run(play)
