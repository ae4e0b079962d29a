"""Pydantic AI's agent with its provider for OpenAI: ``openai:`` is the Responses API to it."""

from __future__ import annotations

import os
from typing import Any

import part


async def play(task: part.Task) -> part.Report:
    os.environ |= {"OPENAI_BASE_URL": f"http://{task.base}/v1", "OPENAI_API_KEY": "sk-none"}
    from pydantic_ai import Agent

    return await SCENARIOS[task.scenario](Agent("openai:gpt-4o"))


async def response(agent: Any) -> part.Report:
    whole = await agent.run(part.PHRASE)
    async with agent.run_stream(part.PHRASE) as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True)]
    assert "".join(pieces) == whole.output, pieces
    assert whole.usage.total_tokens > 0
    return part.Report(transcript=whole.output)


async def tool(agent: Any) -> part.Report:
    calls: list[dict[str, Any]] = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        calls.append({"name": "get_weather", "arguments": {"city": city}})
        return f"sunny in {city}"

    done = await agent.run(part.TOOL_CALL)
    (call,) = calls
    return part.Report(transcript=done.output, call=call)


async def following(agent: Any) -> part.Report:
    first = await agent.run(part.PHRASE)
    second = await agent.run(part.RECALL, message_history=first.all_messages())
    return part.Report(transcript=second.output)


SCENARIOS = {"response": response, "response_tool": tool, "response_next": following}

part.run(play)
