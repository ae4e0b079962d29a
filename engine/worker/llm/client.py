"""A client of one OpenAI-compatible chat completions server: Ollama, LM Studio, llama.cpp, vLLM, SGLang, hosted ones.

It asks, and yields the answer as the engine's chunks. It knows no stage and no request of the engine. Nothing of what
is asked or answered is logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import httpx2

from engine.errors import EngineError
from engine.worker.llm.decoder import ChatStreamDecoder
from engine.worker.llm.deltas import Delta
from engine.worker.llm.event_stream import EventStreamReader
from engine.worker.llm.fields import refused_by, shorter, without
from engine.worker.llm.messages import texts_of
from engine.worker.llm.options import ChatServerOptions
from engine.worker.llm.refusals import as_engine_error, stranger
from engine.worker.remote.connection import (
    BROKEN,
    LARGEST_BODY,
    SOON_S,
    ServerConnections,
    ServerModels,
    body_of,
    json_of,
    kind_of,
)
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import ServerRefusal, unreachable

STREAMS = frozenset({
    "text/event-stream", "text/plain", "application/octet-stream", "application/x-ndjson", "application/jsonl",
    "application/stream+json", "application/json", "",
})  # fmt: skip
"""Content types of answers; proxies and small servers often name another one than the event stream's."""

TAIL_S = 1.0
"""Seconds in which the usage, and the end of the stream, may follow a complete answer."""


class ChatClient:
    """A client of one server that keeps its connections warm between answers. It needs ``aclose`` at the end.

    Raises ConfigError for a key file that can't be used, at once; it is read again by nobody.
    """

    def __init__(self, options: ChatServerOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._connection = ServerConnections(options, now)
        self._refused = frozenset[str]()

    async def answer(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        """The answer to a request's body; its Usage is last. To close this generator aborts the answer at the server.

        ``name`` begins the ids of tool calls that the server gives none; ``begun`` is of a body that asks for the rest
        of an answer, which may be nothing. Raises one EngineError. Before the first
        delta the server is asked once more where the connection broke, or where it asks for a moment; never after it.
        """
        options = self._options
        patience = self._connection.patience(options.first_token_s, options.stall_s)
        doubted = frozenset[str]()
        length = dict[str, Any]()
        again = True
        came = False
        while True:
            sent = without(body, self._refused | doubted) | length
            try:
                async with aclosing(self._answer(sent, ChatStreamDecoder(name, begun), patience)) as deltas:
                    async for delta in deltas:
                        came = True
                        self._refused = self._refused | doubted
                        yield delta
                return
            except ServerRefusal as refusal:
                if not came and not length and (length := shorter(refusal, sent)):
                    continue
                if not came and (more := refused_by(refusal, sent)):
                    doubted |= more
                    continue
                wait_s = refusal.retry_after_s
                if came or not again or wait_s is None or wait_s > min(SOON_S, patience.left_s):
                    raise as_engine_error(refusal, options, texts_of(body), self._connection.key) from None
                again = False
                await patience.wait(asyncio.sleep(wait_s))
            except httpx2.HTTPError as error:
                if came or not again or not isinstance(error, BROKEN):
                    raise unreachable(error, options) from None
                again = False

    async def probe(self) -> ServerModels:
        """The server's models, without asking any of them anything. Raises EngineError where it is not to be reached,
        or refuses."""
        return await self._connection.models()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """A reply of the server's own API, beside OpenAI's, as JSON; None where there is no such, or it refuses.

        Raises EngineError where the server is not to be reached.
        """
        return await self._connection.post(f"{self._options.own_api}{path}", body)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connection.aclose()

    async def _answer(
        self, body: Mapping[str, Any], decoder: ChatStreamDecoder, patience: Patience
    ) -> AsyncGenerator[Delta]:
        """One try. Raises EngineError, Refusal, or httpx2's errors."""
        async with (
            self._connection.response("POST", "chat/completions", patience, **json_of(body)) as response,
            aclosing(self._events(response, patience)) as events,
        ):
            while (data := await _next(events, decoder, patience)) is not None:
                length = decoder.length
                deltas = decoder.feed(data)
                if decoder.length > length:
                    patience.progress()
                for delta in deltas:
                    yield delta
                if decoder.finished:
                    patience.hurry(TAIL_S)
                if decoder.done:
                    break
            for delta in decoder.end():
                yield delta
            await _next(events, decoder, patience)  # read to its end, a connection can be used again

    async def _events(self, response: httpx2.Response, patience: Patience) -> AsyncGenerator[str]:
        """The data of each event; a body that is JSON and no stream is one."""
        kind = kind_of(response)
        if kind not in STREAMS:
            raise stranger(self._options)
        response.encoding = "utf-8"  # by the standard, whatever the head says
        reader = EventStreamReader()
        if kind == "application/json":
            body = (await body_of(response, LARGEST_BODY, patience)).decode("utf-8", "replace")
            streamed = body.lstrip("\ufeff \t\r\n").startswith(("data:", "event:", ":"))
            for event in [*reader.feed(body), *reader.flush()] if streamed else [body]:
                yield event
            return
        came = False
        async for text in response.aiter_text():
            for event in reader.feed(text):
                came = True
                yield event
            if reader.held > LARGEST_BODY:
                raise httpx2.SSEError(f"an event of more than {LARGEST_BODY} characters")
        for event in reader.flush():
            came = True
            yield event
        if not came and kind != "text/event-stream":
            raise stranger(self._options)


async def _next(events: AsyncIterator[str], decoder: ChatStreamDecoder, patience: Patience) -> str | None:
    """The next event's data. None at the end, and where nothing comes behind a complete answer."""
    try:
        return await patience.wait(anext(events, None))
    except (EngineError, httpx2.HTTPError):
        if decoder.finished:
            return None
        raise
