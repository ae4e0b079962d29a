"""OpenAI's Python client, as its examples use it: events one by one."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import part
from openai import AsyncOpenAI

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def play(task: part.Task, key: str = "sk-none", **turn_detection: Any) -> part.Report:
    client = AsyncOpenAI(api_key=key, base_url=f"http://{task.base}/v1", websocket_base_url=f"ws://{task.base}/v1")
    async with client.realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(
            session={
                "type": "realtime",
                "instructions": "Be brief.",
                "tools": [TOOL],
                "audio": {
                    "input": {
                        "transcription": {"model": "whisper-1"},
                        "turn_detection": {"type": "server_vad", **turn_detection},
                    },
                    "output": {"voice": "marin"},
                },
            }
        )
        return await SCENARIOS[task.scenario](connection, task)


async def text(connection: Any, task: part.Task) -> part.Report:
    await ask(connection, part.PHRASE)
    return await answer(connection)


async def speak(connection: Any, task: part.Task) -> part.Report:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(connection, task))
        return await answer(connection)


async def tool(connection: Any, task: part.Task) -> part.Report:
    await ask(connection, part.TOOL_CALL)
    async for event in connection:
        if event.type == "response.function_call_arguments.done":
            call = event
        elif event.type == "response.done":
            break
        assert event.type != "error", event
    city = json.loads(call.arguments)["city"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": f"sunny in {city}"}
    await connection.conversation.item.create(item=output)
    await connection.response.create()
    report = await answer(connection)
    report.call = {"name": call.name, "arguments": call.arguments}
    return report


async def barge_in(connection: Any, task: part.Task) -> part.Report:
    """The user speaks over a long answer; his own turn is answered."""
    await ask(connection, part.LONG)
    item_id = await enough(connection)
    interrupted = part.Report()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(connection, task))
        heard = await answer(connection, interrupted, status="cancelled")
        assert heard.transcript.startswith("word0 ")
        await truncate(connection, item_id)
        report = await answer(connection)
    report.interrupted = interrupted.interrupted
    report.interrupted_audio_s = part.ENOUGH_S + interrupted.audio_s
    return report


async def truncation(connection: Any, task: part.Task) -> part.Report:
    """The user stops a long answer and says how much of it he heard; then he asks what that was."""
    await ask(connection, part.LONG)
    item_id = await enough(connection)
    await connection.response.cancel()
    await answer(connection, status="cancelled")
    await truncate(connection, item_id)
    await ask(connection, part.RECALL)
    report = await answer(connection)
    report.cut_ms = round(part.ENOUGH_S * 1000)
    return report


async def truncate(connection: Any, item_id: str) -> None:
    await connection.conversation.item.truncate(
        item_id=item_id, content_index=0, audio_end_ms=round(part.ENOUGH_S * 1000)
    )


async def ask(connection: Any, words: str) -> None:
    content = [{"type": "input_text", "text": words}]
    await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
    await connection.response.create()


async def microphone(connection: Any, task: part.Task) -> None:
    async for piece in part.voice(task):
        await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())


async def enough(connection: Any) -> str:
    """The id of the answer, once enough of it came."""
    audio = b""
    async for event in connection:
        assert event.type != "error", event
        if event.type == "response.output_audio.delta":
            audio += base64.b64decode(event.delta)
            if part.seconds(audio) >= part.ENOUGH_S:
                return event.item_id
    raise AssertionError("the connection was closed")


async def answer(connection: Any, report: part.Report | None = None, status: str = "completed") -> part.Report:
    """The next answer to its end."""
    report = report or part.Report()
    audio = b""
    async for event in connection:
        assert event.type != "error", event
        match event.type:
            case "response.output_audio.delta":
                audio += base64.b64decode(event.delta)
            case "response.output_audio_transcript.done":
                report.transcript = event.transcript
            case "conversation.item.input_audio_transcription.completed":
                report.heard = event.transcript
            case "input_audio_buffer.speech_started":
                report.interrupted = True
            case "response.done":
                assert event.response.status == status, event.response
                report.audio_s = part.seconds(audio)
                return report
            case _:
                pass
    raise AssertionError("the connection was closed")


SCENARIOS = {"text": text, "voice": speak, "tool": tool, "barge_in": barge_in, "truncate": truncation}

if __name__ == "__main__":
    part.run(play)
