"""The official client, unmodified: a typed turn, a spoken turn, and a tool call."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.app.rig import Running, silence, tone


@pytest.fixture
async def openai(server: Running) -> Any:
    async with AsyncOpenAI(
        api_key="sk-none", base_url=f"{server.http}/v1", websocket_base_url=server.ws.removesuffix("/realtime")
    ) as client:
        yield client


async def up_to(connection: Any, type: str) -> AsyncGenerator[Any]:
    async for event in connection:
        yield event
        if event.type == type:
            return


async def until(connection: Any, type: str) -> Any:
    async for event in connection:
        assert event.type != "error", event
        if event.type == type:
            return event
    raise AssertionError(f"closed before {type}")


async def test_a_typed_turn(openai: Any) -> None:
    async with openai.realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        content = [{"type": "input_text", "text": "say: hello there"}]
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await connection.response.create()
        done = await until(connection, "response.output_text.done")
        assert done.text == "hello there"
        assert (await until(connection, "response.done")).response.status == "completed"


async def test_a_spoken_turn(openai: Any) -> None:
    async with openai.realtime.connect(model="gpt-realtime") as connection:
        audio = {"input": {"transcription": {"model": "whisper-1"}}, "output": {"voice": "marin"}}
        await connection.session.update(session={"type": "realtime", "audio": audio})
        for pcm in (silence(0.3), tone(0.6), silence(0.9)):
            await connection.input_audio_buffer.append(audio=base64.b64encode(pcm.tobytes()).decode())
        transcript = await until(connection, "conversation.item.input_audio_transcription.completed")
        assert transcript.transcript.endswith("seconds")
        events = [event async for event in up_to(connection, "response.done")]
        assert events[-1].response.status == "completed"
        deltas = [event.delta for event in events if event.type == "response.output_audio.delta"]
        assert (
            sum(len(base64.b64decode(delta)) for delta in deltas) == 2 * 24_000 * 4 * 2 * 0.04
        )  # four words, two codec frames of 40 ms each


async def test_a_tool_call(openai: Any) -> None:
    async with openai.realtime.connect(model="gpt-realtime") as connection:
        tool = {"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}}}
        await connection.session.update(session={"type": "realtime", "tools": [tool], "tool_choice": "auto"})
        content = [{"type": "input_text", "text": "tool time {}"}]
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await connection.response.create()
        call = await until(connection, "response.function_call_arguments.done")
        assert (call.name, call.arguments) == ("time", "{}")
        assert (await until(connection, "response.done")).response.output[0].type == "function_call"
