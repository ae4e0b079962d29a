"""The channel over a WebSocket: events are text frames, sound is base64 in them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import orjson
import pybase64
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from app.client.channel import ClientError, refusal, server_parts
from app.client.events import Event, decode
from engine.core import Pcm

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""One retrieved item of five minutes is 20 MB."""

SILENCE_S = 20.0
"""Seconds in which a server that lives answers a ping. Sound that it has yet to read lies before the ping."""


@asynccontextmanager
async def opened(
    url: str,
    model: str = "",
    key: str | None = None,
    trust: ssl.SSLContext | None = None,
    silence_s: float = SILENCE_S,
) -> AsyncGenerator[SocketChannel]:
    """A channel to the server at ``http(s)://host:port`` or ``ws(s)://…`` while the block lasts. Raises ClientError.

    A path says where its API lies, or that of its Realtime endpoint itself: ``https://example.org/v1``.
    """
    address = _socket_url(url, model)
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    try:
        socket = await connect(
            address,
            additional_headers=headers,
            ssl=trust,
            compression=None,
            proxy=None,
            max_size=MAX_EVENT_BYTES,
            ping_timeout=silence_s,
        )
    except InvalidStatus as refused:
        raise refusal(refused.response.body or b"", f"the server refuses the connection: {refused}") from None
    except (OSError, WebSocketException, ValueError) as error:
        raise ClientError(f"no session at {url}: {error}") from None
    async with socket:
        yield SocketChannel(socket)


class SocketChannel:
    """One open socket."""

    plays = False

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, event: dict[str, Any]) -> None:
        try:
            await self._socket.send(orjson.dumps(event).decode())
        except WebSocketException as error:
            raise ClientError(f"the connection has ended: {error}", "connection_lost") from None

    async def speak(self, pcm: Pcm) -> None:
        audio = pybase64.b64encode(pcm.astype("<i2", copy=False).tobytes()).decode()
        await self.send({"type": "input_audio_buffer.append", "audio": audio})

    async def receive(self) -> Event:
        try:
            return decode(await self._socket.recv())
        except WebSocketException as error:
            raise ClientError(f"the connection has ended: {error}", "connection_lost") from None
        except ValueError as error:
            raise ClientError(f"the server sent something that is not an event: {error}") from None


def _socket_url(url: str, model: str) -> str:
    """``http`` becomes ``ws``, and the path that of the endpoint. Raises ClientError."""
    parts = server_parts(url)
    path = parts.path.rstrip("/") or "/v1"
    endpoint = path if path.endswith("/realtime") else f"{path}/realtime"
    query = f"{parts.query}&model={quote(model)}" if parts.query else f"model={quote(model)}"
    return f"{parts.scheme.replace('http', 'ws')}://{parts.netloc}{endpoint}?{query}"
