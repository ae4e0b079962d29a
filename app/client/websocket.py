"""The client's channel over a WebSocket: events are text frames with audio in base64."""

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

from app.client.channel import ClientError, not_connected, refusal, server_parts, tls_context
from app.client.events import Event, decode
from engine.core import Pcm

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Maximum bytes of an event: a retrieved item with five minutes of audio has 20 MB."""

SILENCE_S = 20.0
"""Seconds within which a live server responds to a ping. It first reads the audio that was sent before."""


@asynccontextmanager
async def opened(
    url: str,
    model: str = "",
    key: str | None = None,
    trust: ssl.SSLContext | None = None,
    silence_s: float = SILENCE_S,
) -> AsyncGenerator[SocketChannel]:
    """Open a channel to the server at ``http(s)://host:port`` or ``ws(s)://…`` while the block lasts.

    A path in the URL is the path of the API, such as ``https://example.org/v1``, or of the Realtime endpoint. Raises
    ClientError.
    """
    address = _socket_url(url, model)
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    try:
        socket = await connect(
            address,
            additional_headers=headers,
            ssl=tls_context(server_parts(url), trust),
            compression=None,
            proxy=None,
            max_size=MAX_EVENT_BYTES,
            ping_timeout=silence_s,
        )
    except InvalidStatus as refused:
        raise refusal(refused.response.body or b"", f"the server refused the connection: {refused}") from None
    except (OSError, WebSocketException, ValueError) as error:
        raise not_connected(url, error) from None
    async with socket:
        yield SocketChannel(socket)


class SocketChannel:
    """An open WebSocket."""

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
            raise ClientError(f"the server sent an invalid event: {error}") from None


def _socket_url(url: str, model: str) -> str:
    """Convert a server's URL to the WebSocket URL of its Realtime endpoint. Raises ClientError."""
    parts = server_parts(url)
    path = parts.path.rstrip("/") or "/v1"
    endpoint = path if path.endswith("/realtime") else f"{path}/realtime"
    query = f"{parts.query}&model={quote(model)}" if parts.query else f"model={quote(model)}"
    return f"{parts.scheme.replace('http', 'ws')}://{parts.netloc}{endpoint}?{query}"
