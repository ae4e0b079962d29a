"""A typed client for Realtime servers, Parley or others: for tests, benchmarks and your own programs.

``async with connect("http://127.0.0.1:8000") as client: answer = await client.ask("What can you do?")``
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

from app.client import websocket
from app.client.channel import ClientChannel, ClientError
from app.client.client import Client, Eagerness, Events
from app.client.events import (
    AudioDelta,
    CallDone,
    Error,
    Event,
    ItemTruncated,
    Other,
    PlaybackPaused,
    PlaybackResumed,
    ResponseCreated,
    ResponseDone,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    TranscriptionCompleted,
)
from app.client.response import Response
from app.client.tool import Tool
from app.client.websocket import SILENCE_S

__all__ = [
    "AudioDelta",
    "CallDone",
    "Client",
    "ClientChannel",
    "ClientError",
    "Eagerness",
    "Error",
    "Event",
    "Events",
    "ItemTruncated",
    "Other",
    "PlaybackPaused",
    "PlaybackResumed",
    "Response",
    "ResponseCreated",
    "ResponseDone",
    "SessionCreated",
    "SessionUpdated",
    "SpeechStarted",
    "SpeechStopped",
    "TextDelta",
    "Tool",
    "TranscriptionCompleted",
    "connect",
]


@asynccontextmanager
async def connect(
    url: str,
    *,
    model: str = "",
    key: str | None = None,
    tools: Iterable[Tool] = (),
    trust: ssl.SSLContext | None = None,
    transport: Literal["websocket", "webrtc"] = "websocket",
    eagerness: Eagerness | None = "auto",
    silence_s: float = SILENCE_S,
) -> AsyncGenerator[Client]:
    """Open a session at a server; it ends with the block.

    Args:
      url: ``http(s)://host:port``. For a WebSocket, a path replaces the default ``/v1`` of the API.
      model: The model to request.
      key: The API key.
      tools: Functions that the model may call; the client runs them.
      trust: Verifies the certificate of an ``https`` server. None: this machine's authorities, or SSL_CERT_FILE.
      transport: How events and audio are carried.
      eagerness: How soon a finished spoken turn is answered (``semantic_vad``); None uses the server's default.
      silence_s: Seconds without a response to a ping after which a WebSocket counts as lost.

    Yields:
      The client of the session.

    Raises:
      ClientError: The session could not be opened.
    """
    opened = _opened(transport)
    async with opened(url, model, key, trust, silence_s) as channel, Client(channel, tools, eagerness) as client:
        yield client


def _opened(transport: Literal["websocket", "webrtc"]) -> Callable[..., AbstractAsyncContextManager[ClientChannel]]:
    if transport == "websocket":
        return websocket.opened
    from app.client import webrtc  # heavy: it loads the media libraries

    return webrtc.opened
