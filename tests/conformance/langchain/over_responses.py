"""LangChain's chat model for OpenAI at ``/v1/responses``, where it goes by itself for its newest models."""

from __future__ import annotations

import part
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool as a_tool
from langchain_openai import ChatOpenAI


@a_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def play(task: part.Task) -> part.Report:
    model = ChatOpenAI(
        model="gpt-6-astra", base_url=f"http://{task.base}/v1", api_key="sk-none", use_responses_api=True
    )
    return await SCENARIOS[task.scenario](model)


async def response(model: ChatOpenAI) -> part.Report:
    whole = await model.ainvoke(part.PHRASE)
    pieces = [chunk.text async for chunk in model.astream(part.PHRASE)]
    assert "".join(pieces) == whole.text, pieces
    assert whole.usage_metadata["total_tokens"] > 0
    return part.Report(transcript=whole.text)


async def tool(model: ChatOpenAI) -> part.Report:
    armed = model.bind_tools([get_weather])
    asked = HumanMessage(part.TOOL_CALL)
    answer = await armed.ainvoke([asked])
    (call,) = answer.tool_calls
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    told = await armed.ainvoke([asked, answer, result])
    return part.Report(transcript=told.text, call={"name": call["name"], "arguments": call["args"]})


async def following(model: ChatOpenAI) -> part.Report:
    """With the whole history, as it sends it by itself; then with what the server keeps."""
    first = await model.ainvoke(part.PHRASE)
    history = [HumanMessage(part.PHRASE), first, HumanMessage(part.RECALL)]
    second = await model.ainvoke(history)
    short = model.model_copy(update={"use_previous_response_id": True})
    assert (await short.ainvoke(history)).text == second.text
    return part.Report(transcript=second.text)


SCENARIOS = {"response": response, "response_tool": tool, "response_next": following}

part.run(play)
