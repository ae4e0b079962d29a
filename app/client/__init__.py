"""A typed client of Realtime servers, this one or another: for tests, for the bench, and for your own programs.

``async with connect("http://127.0.0.1:8000") as client: answer = await client.ask("What can you do?")``
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

from app.client import websocket
from app.client.answer import Answer
from app.client.client import Client, Eagerness, Events, Tool
from app.client.events import (
    AudioDelta,
    CallDone,
    Event,
    Other,
    ResponseCreated,
    ResponseDone,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    Transcribed,
    Trouble,
    Truncated,
)
from app.client.line import ClientError, Line

__all__ = [
    "Answer",
    "AudioDelta",
    "CallDone",
    "Client",
    "ClientError",
    "Eagerness",
    "Event",
    "Events",
    "Line",
    "Other",
    "ResponseCreated",
    "ResponseDone",
    "SessionCreated",
    "SessionUpdated",
    "SpeechStarted",
    "SpeechStopped",
    "TextDelta",
    "Tool",
    "Transcribed",
    "Trouble",
    "Truncated",
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
) -> AsyncGenerator[Client]:
    """A session at ``http(s)://host:port`` while the block lasts. ``trust`` verifies an ``https`` server's certificate.

    Over a WebSocket, a path in ``url`` says where the API lies, if it is not ``/v1``.
    ``eagerness`` says how soon spoken turns are answered, once they sound finished (``semantic_vad``); with None the
    server's own default ends them.
    Raises ClientError if there is none to be had.
    """
    opened = _opened(transport)
    async with opened(url, model, key, trust) as line, Client(line, tools, eagerness) as client:
        yield client


def _opened(transport: Literal["websocket", "webrtc"]) -> Callable[..., AbstractAsyncContextManager[Line]]:
    if transport == "websocket":
        return websocket.opened
    from app.client import webrtc  # heavy: it loads the media libraries

    return webrtc.opened
