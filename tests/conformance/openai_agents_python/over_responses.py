"""OpenAI's Agents SDK for Python: an agent with its default model, which is asked at ``/v1/responses``."""

from __future__ import annotations

from typing import Any

import part
from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

CALLS: list[dict[str, Any]] = []


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    CALLS.append({"name": "get_weather", "arguments": {"city": city}})
    return f"sunny in {city}"


async def play(task: part.Task) -> part.Report:
    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(api_key="sk-none", base_url=f"http://{task.base}/v1"))
    return await SCENARIOS[task.scenario](Agent("Helper", instructions="Be brief.", tools=[get_weather]))


async def response(agent: Any) -> part.Report:
    whole = await Runner.run(agent, part.PHRASE)
    stream = Runner.run_streamed(agent, part.PHRASE)
    raw = [event.data async for event in stream.stream_events() if event.type == "raw_response_event"]
    pieces = [event.delta for event in raw if event.type == "response.output_text.delta"]
    assert "".join(pieces) == stream.final_output == whole.final_output, pieces
    return part.Report(transcript=whole.final_output)


async def tool(agent: Any) -> part.Report:
    done = await Runner.run(agent, part.TOOL_CALL)
    (call,) = CALLS
    return part.Report(transcript=done.final_output, call=call)


async def following(agent: Any) -> part.Report:
    """With the whole history, as it sends it by itself; then with what the server keeps."""
    first = await Runner.run(agent, part.PHRASE)
    second = await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": part.RECALL}])
    short = await Runner.run(agent, part.RECALL, previous_response_id=first.last_response_id)
    assert short.final_output == second.final_output
    return part.Report(transcript=second.final_output)


SCENARIOS = {"response": response, "response_tool": tool, "response_next": following}

part.run(play)
