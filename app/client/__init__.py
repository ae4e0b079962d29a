"""A typed client of Realtime servers, this one or another: for tests, for the bench, and for your own programs.

``async with connect("http://127.0.0.1:8000") as client: answer = await client.ask("What can you do?")``
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

from app.client import websocket
from app.client.channel import ClientChannel, ClientError
from app.client.client import Client, Eagerness, Events, Tool
from app.client.events import (
    AudioDelta,
    CallDone,
    Error,
    Event,
    ItemTruncated,
    Other,
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
    """A session at ``http(s)://host:port`` while the block lasts. ``trust`` verifies an ``https`` server's certificate.

    Over a WebSocket, a path in ``url`` says where the API lies, if it is not ``/v1``.
    ``eagerness`` says how soon spoken turns are answered, once they sound finished (``semantic_vad``); with None the
    server's own default ends them. A WebSocket whose server answers no ping for ``silence_s`` has ended.
    Raises ClientError if there is none to be had.
    """
    opened = _opened(transport)
    async with opened(url, model, key, trust, silence_s) as channel, Client(channel, tools, eagerness) as client:
        yield client


def _opened(transport: Literal["websocket", "webrtc"]) -> Callable[..., AbstractAsyncContextManager[ClientChannel]]:
    if transport == "websocket":
        return websocket.opened
    from app.client import webrtc  # heavy: it loads the media libraries

    return webrtc.opened
