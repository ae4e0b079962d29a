"""OpenAI's Agents SDK for Python, with a hosted MCP tool: the server calls it, not the client."""

from __future__ import annotations

from typing import Any

import part
from agents import Agent, HostedMCPTool, Runner, set_default_openai_client, set_tracing_disabled
from agents.items import ToolCallItem
from openai import AsyncOpenAI

ASKED: list[str] = []


def approve(request: Any) -> Any:
    """The user's own word, which the agent asks for."""
    ASKED.append(request.data.name)
    return {"approve": True}


async def play(task: part.Task) -> part.Report:
    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(api_key="sk-none", base_url=f"http://{task.base}/v1"))
    return await SCENARIOS[task.scenario](task)


def _agent(task: part.Task, **tool: Any) -> Any:
    approval = "always" if tool else "never"
    entry: Any = {
        "type": "mcp", "server_label": "weather", "server_url": task.tools, "require_approval": approval,
        "authorization": "sesame",
    }  # fmt: skip
    return Agent("Helper", instructions="Be brief.", tools=[HostedMCPTool(tool_config=entry, **tool)])


async def hosted(task: part.Task) -> part.Report:
    """Whole, streamed, and with a further question about the whole history."""
    agent = _agent(task)
    done = await Runner.run(agent, part.HOSTED_CALL)
    stream = Runner.run_streamed(agent, part.HOSTED_CALL)
    raw = [event.data async for event in stream.stream_events() if event.type == "raw_response_event"]
    kinds = [event.type for event in raw]
    assert "response.mcp_list_tools.completed" in kinds, kinds
    assert "response.mcp_call.completed" in kinds, kinds
    assert stream.final_output == done.final_output
    again = await Runner.run(agent, [*done.to_input_list(), {"role": "user", "content": part.RECALL}])
    assert done.final_output in again.final_output, again.final_output
    (call,) = [item.raw_item for item in done.new_items if isinstance(item, ToolCallItem)]
    return part.Report(transcript=done.final_output, call={"name": call.name, "arguments": call.arguments})


async def approved(task: part.Task) -> part.Report:
    done = await Runner.run(_agent(task, on_approval_request=approve), part.HOSTED_CALL)
    call = {"name": ASKED[0], "arguments": '{"city": "Oslo"}'}
    assert len(ASKED) == 1, ASKED
    return part.Report(transcript=done.final_output, call=call)


SCENARIOS = {"mcp": hosted, "mcp_approved": approved}

part.run(play)
