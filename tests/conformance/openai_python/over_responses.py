"""OpenAI's Python client at ``/v1/responses``: create, stream, parse, and a conversation that the server keeps."""

from __future__ import annotations

import json
from typing import Any

import part
from openai import AsyncOpenAI, pydantic_function_tool
from openai.types.responses.parsed_response import ParsedResponseFunctionToolCall
from pydantic import BaseModel, Field


class Weather(BaseModel):
    """The weather in a city."""

    city: str = Field(description="Its name.")


MODEL = "gpt-4o"
TOOL: Any = {"type": "function", **pydantic_function_tool(Weather, name="get_weather")["function"]}


async def play(task: part.Task) -> part.Report:
    async with AsyncOpenAI(api_key="sk-none", base_url=f"http://{task.base}/v1") as client:
        return await SCENARIOS[task.scenario](client)


async def response(client: AsyncOpenAI) -> part.Report:
    whole = await client.responses.create(model=MODEL, input=part.PHRASE)
    async with client.responses.stream(model=MODEL, input=part.PHRASE) as stream:
        pieces = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        done = await stream.get_final_response()
    plain = await client.responses.create(model=MODEL, input=part.PHRASE, stream=True)
    assert [event.type async for event in plain][-1] == "response.completed"
    assert "".join(pieces) == done.output_text == whole.output_text, pieces
    assert whole.usage is not None
    assert whole.usage.total_tokens > 0
    return part.Report(transcript=whole.output_text)


async def tool(client: AsyncOpenAI) -> part.Report:
    asked = await client.responses.parse(model=MODEL, input=part.TOOL_CALL, tools=[TOOL])
    (call,) = asked.output
    assert isinstance(call, ParsedResponseFunctionToolCall)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny in Oslo"}
    told = await client.responses.create(model=MODEL, previous_response_id=asked.id, input=[result], tools=[TOOL])
    return part.Report(
        transcript=told.output_text, call={"name": call.name, "arguments": json.loads(call.arguments)}
    )  # fmt: skip


async def following(client: AsyncOpenAI) -> part.Report:
    first = await client.responses.create(model=MODEL, input=part.PHRASE)
    assert (await client.responses.retrieve(first.id)).output_text == first.output_text
    second = await client.responses.create(model=MODEL, input=part.RECALL, previous_response_id=first.id)
    await client.responses.delete(first.id)
    return part.Report(transcript=second.output_text)


SCENARIOS = {"response": response, "response_tool": tool, "response_next": following}

part.run(play)
