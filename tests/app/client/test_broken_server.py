"""The typed client against a scripted channel: events that a server should not send, or sends twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.client import ClientError, Tool
from app.client.channel import ClientChannel
from app.client.client import Client
from app.client.events import Event, decode
from engine.core import Pcm
from tests.app.rig import eventually

CREATED = b'{"type": "session.created", "session": {"model": "script"}}'
UPDATED = b'{"type": "session.updated", "session": {"model": "script"}}'
SPEECH = b'{"type": "input_audio_buffer.speech_started", "item_id": "i", "audio_start_ms": 0}'
CALL = (
    b'{"type": "response.function_call_arguments.done", "response_id": "r", "call_id": "c", "name": "slow", '
    b'"arguments": "{}"}'
)
DONE = b'{"type": "response.done", "response": {"id": "r", "status": "completed"}}'


class ScriptedChannel(ClientChannel):
    """A channel that receives the events of ``tell`` and keeps the client's events in ``sent``."""

    plays = False

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def tell(self, *events: bytes) -> None:
        for event in events:
            self._events.put_nowait(decode(event))

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)
        if event["type"] == "session.update":
            self.tell(UPDATED)

    async def speak(self, pcm: Pcm) -> None:
        pass

    async def receive(self) -> Event:
        return await self._events.get()


@pytest.mark.parametrize(
    "event",
    [
        b'{"type": "response.created", "response": {}}',
        b'{"type": "response.done", "response": {}}',
        b'{"type": "response.created", "response": {"id": "r", "metadata": 1}}',
    ],
)
async def test_an_event_that_cannot_be_understood_ends_the_session_with_an_error(event: bytes) -> None:
    channel = ScriptedChannel()
    channel.tell(CREATED)
    async with asyncio.timeout(20), Client(channel) as client:
        asking = asyncio.create_task(client.respond())
        await eventually(lambda: bool(channel.sent))
        channel.tell(event)
        with pytest.raises(ClientError, match="invalid event"):
            await asking
        with pytest.raises(ClientError, match="invalid event"):
            await client.respond()


async def test_speech_that_starts_again_while_a_cancelled_function_cleans_up_ends_nothing() -> None:
    cleaning, clean = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean.wait()

    channel = ScriptedChannel()
    channel.tell(CREATED)
    tool = Tool("slow", "Takes long.", slow, parley={"on_interrupt": "cancel"})
    async with asyncio.timeout(20), Client(channel, [tool]) as client:
        asking = asyncio.create_task(client.respond())
        await eventually(lambda: bool(client._asked))
        (name,) = client._asked
        response = {"id": "r", "metadata": {"client_event_id": name}}
        channel.tell(json.dumps({"type": "response.created", "response": response}).encode(), CALL, DONE)
        await eventually(lambda: bool(client._cancellable))
        channel.tell(SPEECH)
        await cleaning.wait()
        channel.tell(SPEECH)
        await eventually(channel._events.empty)
        clean.set()
        await eventually(lambda: any("output" in str(event) for event in channel.sent))
        asking.cancel()
        await asyncio.wait([asking])
