"""A proxy in front of a server that plants a fault into each session: late answers, deafness, or another tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pybase64
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed


class Fault:
    """Passes every event on. A fault overrides one of the two directions."""

    def __init__(self) -> None:
        self.is_answering = False

    async def to_server(self, event: dict[str, Any]) -> dict[str, Any]:
        return event

    async def to_client(self, event: dict[str, Any]) -> dict[str, Any]:
        self.is_answering |= event["type"] == "response.output_audio.delta"
        self.is_answering &= event["type"] != "response.done"
        return event


class LateAnswers(Fault):
    """Delays each answer by five seconds."""

    async def to_client(self, event: dict[str, Any]) -> dict[str, Any]:
        if event["type"] == "response.created":
            await asyncio.sleep(5)
        return await super().to_client(event)


class IgnoredInterruption(Fault):
    """Hears nothing while it answers."""

    async def to_server(self, event: dict[str, Any]) -> dict[str, Any]:
        if event["type"] == "input_audio_buffer.append" and self.is_answering:
            silence = bytes(len(pybase64.b64decode(event["audio"])))
            return event | {"audio": pybase64.b64encode(silence).decode()}
        return event


class WrongTool(Fault):
    """Calls ``set_alarm`` instead of ``set_timer``."""

    async def to_client(self, event: dict[str, Any]) -> dict[str, Any]:
        return json.loads(json.dumps(await super().to_client(event)).replace('"set_timer"', '"set_alarm"'))


@asynccontextmanager
async def faulty(url: str, fault: Callable[[], Fault]) -> AsyncGenerator[str]:
    """The address of a proxy in front of the server at ``http://host:port``; each connection has its own fault."""

    async def connected(client: ServerConnection) -> None:
        assert client.request is not None
        async with connect(url.replace("http", "ws", 1) + client.request.path, proxy=None, max_size=None) as server:
            one = fault()
            ways = [
                asyncio.create_task(_pass_on(client, server, one.to_server), name="proxy:to_server"),
                asyncio.create_task(_pass_on(server, client, one.to_client), name="proxy:to_client"),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)

    async with serve(connected, "127.0.0.1", 0, max_size=None, ping_interval=None) as proxy:
        yield f"http://127.0.0.1:{next(iter(proxy.sockets)).getsockname()[1]}"


async def _pass_on(
    source: ClientConnection | ServerConnection,
    target: ClientConnection | ServerConnection,
    changed: Callable[[dict[str, Any]], Any],
) -> None:
    try:
        async for text in source:
            await target.send(json.dumps(await changed(json.loads(text))))
    except ConnectionClosed:
        pass
