"""OpenAI's Agents SDK for Python: a realtime agent with a tool, as its examples run one."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import part
from agents import function_tool, set_tracing_disabled
from agents.realtime import RealtimeAgent, RealtimeRunner

CALLS: list[dict[str, str]] = []


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    CALLS.append({"name": "get_weather", "arguments": json.dumps({"city": city})})
    return f"sunny in {city}"


class User:
    """Whoever talks to the agent, and what he got of its answers."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.report = part.Report()
        self.audio = bytearray()
        self.transcripts: dict[str, str] = {}
        self._events = aiter(session)

    async def until(self, wanted: str) -> Any:
        """Events up to one of this type; those of the wire are told by ``raw:`` and their name."""
        async for event in self._events:
            if self._take(event) == wanted:
                return event
        raise AssertionError("the session was closed")

    async def answer(self) -> part.Report:
        """The next answer to its end."""
        self.audio.clear()
        await self.until("raw:response.created")
        done = (await self.until("raw:response.done")).data.data
        if done["response"]["output"][0]["type"] == "function_call":
            return await self.answer()
        assert done["response"]["status"] == "completed", done
        self.report.transcript = done["response"]["output"][0]["content"][0]["transcript"]
        self.report.audio_s = part.seconds(self.audio)
        return self.report

    async def enough(self) -> None:
        """Hear a second of an answer."""
        while part.seconds(self.audio) < part.ENOUGH_S:
            await self.until("audio")

    def _take(self, event: Any) -> str:
        match event.type:
            case "audio":
                self.audio += event.audio.data
            case "audio_interrupted":
                self.report.interrupted = True
            case "error":
                raise AssertionError(event.error)
            case "raw_model_event" if event.data.type == "input_audio_transcription_completed":
                self.report.heard = event.data.transcript
            case "raw_model_event" if event.data.type == "raw_server_event":
                wire = event.data.data
                if wire["type"] == "conversation.item.truncated":
                    self.report.cut_ms = wire["audio_end_ms"]
                return f"raw:{wire['type']}"
            case _:
                pass
        return event.type


@asynccontextmanager
async def talking(task: part.Task) -> Any:
    set_tracing_disabled(True)
    agent = RealtimeAgent(name="Assistant", instructions="Be brief.", tools=[get_weather])
    settings = {
        "model_name": "gpt-realtime",
        "audio": {
            "input": {
                "format": "pcm16",
                "transcription": {"model": "gpt-4o-mini-transcribe"},
                "turn_detection": {"type": "server_vad", "interrupt_response": True},
            },
            "output": {"format": "pcm16", "voice": "ash"},
        },
    }
    runner = RealtimeRunner(agent, config={"model_settings": settings})
    async with await runner.run(model_config={"api_key": "sk-none", "url": f"{task.realtime}?model=x"}) as session:
        yield User(session)


async def play(task: part.Task) -> part.Report:
    async with talking(task) as user:
        await SCENARIOS[task.scenario](user, task)
        return user.report


async def text(user: User, task: part.Task) -> None:
    await user.session.send_message(part.PHRASE)
    await user.answer()


async def speak(user: User, task: part.Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(user, task))
        await user.answer()


async def tool(user: User, task: part.Task) -> None:
    await user.session.send_message(part.TOOL_CALL)
    await user.answer()
    (user.report.call,) = CALLS


async def barge_in(user: User, task: part.Task) -> None:
    await user.session.send_message(part.LONG)
    await user.enough()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(user, task))
        await user.until("raw:response.done")
        user.report.interrupted_audio_s = part.seconds(user.audio)
        await user.answer()


async def truncation(user: User, task: part.Task) -> None:
    """The SDK itself says how much was played; the user then asks what that was."""
    await barge_in(user, task)
    await user.session.send_message(part.RECALL)
    await user.answer()


async def microphone(user: User, task: part.Task) -> None:
    async for piece in part.voice(task):
        await user.session.send_audio(piece)


SCENARIOS = {"text": text, "voice": speak, "tool": tool, "barge_in": barge_in, "truncate": truncation}

part.run(play)
