"""Open WebUI's voice call, as its backend speaks with a Realtime server (routers/audio/realtime.py), through aiohttp.

Open WebUI itself is no library: this is the same exchange. The first event must be session.created, the one behind the
session.update must be session.updated; every error but response_cancel_not_active hangs up. The server finds turns but
answers none by itself: the client asks once it has the transcript. A message larger than 512 KB ends the call.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import part

MAX_EVENT_BYTES = 512 * 1024
COMPLETED = "conversation.item.input_audio_transcription.completed"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
PCM = {"type": "audio/pcm", "rate": part.RATE_HZ}
SESSION = {
    "type": "realtime",
    "output_modalities": ["audio"],
    "instructions": "Be brief.",
    "audio": {
        "input": {
            "format": PCM,
            "transcription": {"model": "gpt-4o-mini-transcribe"},
            "turn_detection": {"type": "server_vad", "interrupt_response": True, "create_response": False},
        },
        "output": {"format": PCM, "voice": "marin"},
    },
    "tools": [TOOL],
    "tool_choice": "auto",
}
STATUS = {
    "conversation": "none",
    "input": [],
    "tools": [],
    "tool_choice": "none",
    "instructions": "Say this briefly in the user's language: I am working on your request.",
    "metadata": {"status": "working"},
}


async def play(task: part.Task) -> part.Report:
    async with aiohttp.ClientSession() as http, calling(http, task) as call:
        return await SCENARIOS[task.scenario](call, task)


class Call:
    """One call: what was sent and heard, by the rules of the backend."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.samples: dict[str, int] = {}
        """Of each answer's item, those that came."""

    async def send(self, type: str, **fields: Any) -> None:
        await self.socket.send_json({"type": type, **fields})

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        async for message in self.socket:
            assert message.type == aiohttp.WSMsgType.TEXT, message
            event = message.json()
            if event["type"] == "error":
                assert event["error"]["code"] == "response_cancel_not_active", event
                continue
            if event["type"] == "response.output_audio.delta":
                pcm = base64.b64decode(event["delta"], validate=True)
                assert len(pcm) % 2 == 0
                self.samples[event["item_id"]] = self.samples.get(event["item_id"], 0) + len(pcm) // 2
            yield event
        raise AssertionError("the connection was closed")

    async def history(self, words: str) -> None:
        """Earlier messages of a chat are items; here it is all that is asked."""
        content = [{"type": "input_text", "text": words}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})

    async def respond(self, **metadata: str) -> None:
        await self.send("response.create", response={"metadata": metadata})

    async def truncate(self, item_id: str) -> int:
        """Where the listener was: no further than what came."""
        end_ms = min(round(part.ENOUGH_S * 1000), self.samples[item_id] * 1000 // part.RATE_HZ)
        await self.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms)
        return end_ms


@asynccontextmanager
async def calling(http: aiohttp.ClientSession, task: part.Task) -> AsyncGenerator[Call]:
    """The handshake: each event is the reply that the backend takes it for."""
    headers = {"Authorization": "Bearer sk-none"}
    url = f"{task.realtime}?model=gpt-realtime"
    async with http.ws_connect(url, headers=headers, heartbeat=20, max_msg_size=MAX_EVENT_BYTES) as socket:
        created = await socket.receive_json()
        assert created["type"] == "session.created", created
        await socket.send_json({"type": "session.update", "session": SESSION})
        updated = await socket.receive_json()
        assert updated["type"] == "session.updated", updated
        yield Call(socket)


async def text(call: Call, task: part.Task) -> part.Report:
    await call.history(part.PHRASE)
    await call.respond(input_item_id="typed")
    return await answer(call, "input_item_id")


async def speak(call: Call, task: part.Task) -> part.Report:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(call, task))
        return await answer(call, "input_item_id")


async def tool(call: Call, task: part.Task) -> part.Report:
    """While the function runs the user is told so, beside the conversation; its result is spoken once it is there."""
    await call.history(part.TOOL_CALL)
    await call.respond(input_item_id="typed")
    item: dict[str, Any] = {}
    async for event in call.events():
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
            item = event["item"]
            assert item["status"] == "completed"
        elif event["type"] == "response.done":
            break
    await call.send("response.create", response=STATUS)
    waiting = await answer(call, "status")
    assert waiting.audio_s > 0
    city = json.loads(item["arguments"])["city"]
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": f"sunny in {city}"}
    await call.send("conversation.item.create", item=output)
    metadata = {"call_id": item["call_id"]}
    await call.send("response.create", response={"tools": [], "tool_choice": "none", "metadata": metadata})
    report = await answer(call, "call_id")
    report.call = {"name": item["name"], "arguments": item["arguments"]}
    return report


async def barge_in(call: Call, task: part.Task) -> part.Report:
    """The user speaks over a long answer: the server stops it, the client truncates it; then they are answered."""
    await call.history(part.LONG)
    await call.respond(input_item_id="typed")
    item_id = await enough(call)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone(call, task))
        async for event in call.events():
            if event["type"] == "input_audio_buffer.speech_started":
                await call.send("response.cancel")  # the server may have been quicker
                await call.truncate(item_id)
            elif event["type"] == "response.done":
                assert event["response"]["status"] == "cancelled", event
                break
        report = await answer(call, "input_item_id")
    report.interrupted, report.interrupted_audio_s = True, call.samples[item_id] / part.RATE_HZ
    return report


async def truncation(call: Call, task: part.Task) -> part.Report:
    await call.history(part.LONG)
    await call.respond(input_item_id="typed")
    item_id = await enough(call)
    await call.send("response.cancel")
    async for event in call.events():
        if event["type"] == "response.done":
            break
    cut_ms = await call.truncate(item_id)
    await call.history(part.RECALL)
    await call.respond(input_item_id="recalled")
    report = await answer(call, "input_item_id")
    report.cut_ms = cut_ms
    return report


async def microphone(call: Call, task: part.Task) -> None:
    async for piece in part.voice(task):
        await call.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())


async def enough(call: Call) -> str:
    """The id of the answer, once enough of it came."""
    async for event in call.events():
        if event["type"] == "response.output_audio.delta":
            item_id: str = event["item_id"]
            if call.samples[item_id] >= part.ENOUGH_S * part.RATE_HZ:
                return item_id
    raise AssertionError("the connection was closed")


async def answer(call: Call, asked_by: str) -> part.Report:
    """The next answer to its end; what the user said before it is answered as soon as its transcript is there."""
    report, item_id = part.Report(), ""
    async for event in call.events():
        match event["type"]:
            case kind if kind == COMPLETED:
                report.heard = event["transcript"]
                if report.heard.strip():
                    await call.respond(input_item_id=event["item_id"])
            case "response.created":
                assert asked_by in event["response"]["metadata"], event
            case "response.output_audio.delta":
                item_id = event["item_id"]
            case "response.output_audio_transcript.done":
                report.transcript = event["transcript"]
            case "response.done":
                assert event["response"]["status"] == "completed", event
                report.audio_s = call.samples.get(item_id, 0) / part.RATE_HZ
                return report
            case _:
                pass
    raise AssertionError("the connection was closed")


SCENARIOS = {"text": text, "voice": speak, "tool": tool, "barge_in": barge_in, "truncate": truncation}

part.run(play)
