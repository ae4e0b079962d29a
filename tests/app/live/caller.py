"""A Live client for tests: it keeps what it got, and every event must be of the SDK's own types, strictly."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import numpy as np
from openai.types.live.connect_server_event import ConnectServerEvent
from openai.types.responses import ResponseStreamEvent
from websockets.asyncio.client import ClientConnection, connect

from tests.app.openai_types import strictly
from tests.app.rig import TIMEOUT_S, Event, Running

TOOL = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": {"type": "object"}}
RESPONSES = {"type": "responses", "responses": {"model": "gpt-5", "tools": [TOOL]}}
SOUND = "session.output_audio.delta"


class LiveClient:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []
        self.sound, self.sounds = b"", list[Event]()

    async def said(self, words: str) -> None:
        """Wait until the server has said that."""
        async with asyncio.timeout(TIMEOUT_S):
            while words not in self.words():
                await self.next()

    async def send(self, type: str, **fields: Any) -> Self:
        await self.socket.send(json.dumps({"type": type, **fields}))
        return self

    async def next(self) -> Event:
        event: Event = json.loads(await self.socket.recv())
        strictly(ConnectServerEvent, event)
        if event["type"] == "response.event":
            strictly(ResponseStreamEvent, event["event"])
        if event["type"] == SOUND:
            self.sound += base64.b64decode(event["delta"])
            self.sounds.append({**event, "delta": ""})
        else:
            self.events.append(event)
        return event

    async def until(self, type: str, inner: str = "") -> Event:
        """The next event of a type; of ``response.event``, one with that inside."""
        async with asyncio.timeout(TIMEOUT_S):  # the silence between would never end
            while (event := await self.next())["type"] != type or (inner and event["event"]["type"] != inner):
                pass
        return event

    async def start(self, **session: Any) -> Event:
        await self.send("session.start", event_id="start", session={"model": "gpt-live-1", **session})
        return await self.until("session.started")

    async def error(self) -> Event:
        return (await self.until("error"))["error"]

    async def say(self, text: str) -> Self:
        """Ask the server to speak of something."""
        return await self.send("session.commentary.append", content=text, delegation_id=None)

    async def append(self, pcm: Any) -> None:
        audio = base64.b64encode(np.asarray(pcm, "<i2").tobytes()).decode()
        await self.send("session.input_audio.append", audio=audio)

    async def speak(self, pcm: Any) -> None:
        for at in range(0, len(pcm), 480):
            await self.append(pcm[at : at + 480])

    def of(self, type: str) -> list[Event]:
        return [event for event in self.events if event["type"] == type]

    def inner(self) -> list[Event]:
        """The events of Responses."""
        return [event["event"] for event in self.of("response.event")]

    def words(self, side: str = "output") -> str:
        return "".join(event["delta"] for event in self.of(f"session.{side}_transcript.delta"))

    @property
    def samples(self) -> Any:
        return np.frombuffer(self.sound, "<i2")


@asynccontextmanager
async def dialled(server: Running, query: str = "") -> AsyncGenerator[LiveClient]:
    """A client whose session is yet to be started."""
    url = f"ws://127.0.0.1:{server.port}/v1/live/sessions{query}"
    async with connect(url, max_size=None, max_queue=None) as socket:
        yield LiveClient(socket)
