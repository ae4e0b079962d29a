"""OpenAI's Python client in a Live session: events one by one, each strictly of its own types."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import part
from openai import AsyncOpenAI
from openai.types.live import ServerEvent
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
EVENT: TypeAdapter[Any] = TypeAdapter(ServerEvent)
INNER: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class User:
    """Whoever talks to the server, and what came until now."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.report = part.Report()
        self.sound = bytearray()
        self.words = ""

    async def next(self) -> Any:
        """The next event, read as its type; an unknown field fails."""
        data = await self.connection.recv_bytes()
        event = EVENT.validate_json(data, strict=True)
        known(event)
        assert event.type != "error", event
        match event.type:
            case "session.output_audio.delta":
                self.sound += base64.b64decode(event.delta)
            case "session.output_transcript.delta":
                self.words += event.delta
            case "session.input_transcript.delta":
                self.report.heard += event.delta
            case "response.event":
                known(INNER.validate_json(json.dumps(event.event), strict=True))
            case _:
                pass
        return event

    async def until(self, type: str) -> Any:
        """The next event of a type, or the next of Responses."""
        while True:
            event = await self.next()
            inner = event.event if event.type == "response.event" else {}
            if type in (event.type, inner.get("type")):
                return inner or event

    async def ask(self, item: Any) -> None:
        await self.connection.response.item.create(item=item)
        await self.connection.response.create()

    async def answer(self) -> None:
        """The next answer to its end, and what of it was heard."""
        await self.until("session.usage.updated")
        self.report.transcript = self.words.strip()
        self.report.audio_s = part.audible_s(self.sound)


def known(made: Any) -> None:
    """No field of an event is one that its type lacks."""
    if isinstance(made, BaseModel):
        assert not made.model_extra, made
        for name in type(made).model_fields:
            known(getattr(made, name))


async def play(task: part.Task) -> part.Report:
    client = AsyncOpenAI(api_key="sk-none", base_url=f"http://{task.base}/v1")
    async with client.live.connect() as connection:
        delegation: Any = {"type": "responses", "responses": {"model": "gpt-5.6-luna", "tools": [TOOL]}}
        await connection.session.start(
            session={
                "model": "gpt-live-1",
                "instructions": "Be brief.",
                "audio": {"output": {"voice": "marin"}},
                "delegation": delegation,
            }
        )
        user = User(connection)
        await user.until("session.started")
        await SCENARIOS[task.scenario](user, task)
        await connection.session.close()
        await user.until("session.closed")
        return user.report


async def text(user: User, task: part.Task) -> None:
    await user.ask({"type": "message", "role": "user", "content": part.PHRASE})
    await user.answer()


async def speak(user: User, task: part.Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(user, task))
        await user.answer()


async def tool(user: User, task: part.Task) -> None:
    await user.ask({"type": "message", "role": "user", "content": part.TOOL_CALL})
    delegated = await user.until("session.delegation.created")
    assert delegated.delegation.target == "responses"
    item: dict[str, Any] = {}
    while item.get("type") != "function_call":
        item = (await user.until("response.output_item.done"))["item"]
    user.report.call = {"name": item["name"], "arguments": item["arguments"]}
    await user.until("response.completed")
    await user.until("session.usage.updated")
    city = json.loads(item["arguments"])["city"]
    await user.ask({"type": "function_call_output", "call_id": item["call_id"], "output": f"sunny in {city}"})
    await user.answer()


async def barge_in(user: User, task: part.Task) -> None:
    """The user speaks over a long answer; their own turn is answered."""
    await user.connection.session.commentary.append(content=part.LONG, delegation_id=None)
    while part.audible_s(user.sound) < part.ENOUGH_S:
        await user.next()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(user, task))
        await user.until("session.usage.updated")
        spoken, user.words = user.words.split(), ""
        assert spoken == [f"word{i}" for i in range(len(spoken))]
        user.report.interrupted, user.report.interrupted_audio_s = len(spoken) < 200, part.audible_s(user.sound)
        user.sound.clear()
        await user.answer()


async def microphone(user: User, task: part.Task) -> None:
    async for piece in part.voice(task):
        await user.connection.session.input_audio.append(audio=base64.b64encode(piece).decode())


SCENARIOS = {"live_text": text, "live_voice": speak, "live_tool": tool, "live_barge_in": barge_in}

part.run(play)
