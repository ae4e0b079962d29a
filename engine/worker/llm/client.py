"""Client of one OpenAI-compatible chat completions server, such as Ollama, LM Studio, llama.cpp, vLLM or a hosted one.

It sends a request body and yields the answer as the engine's chunks. Neither requests nor answers are logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import httpx2

from engine.errors import EngineError, StageFailed
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
"""Seconds to wait for the usage and the end of the stream after a complete answer."""


class ChatClient:
    """Client of one server that keeps connections open between answers. Call ``aclose`` at the end.

    ``longest_wait_s`` is the longest Retry-After, in seconds, after which a request is repeated. Raises ConfigError for
    an unusable key file; the file is read only once.
    """

    def __init__(
        self,
        options: ChatServerOptions,
        now: Callable[[], float] = time.monotonic,
        longest_wait_s: float = SOON_S,
    ) -> None:
        self._options = options
        self._longest_wait_s = longest_wait_s
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
                if came or not again or wait_s is None or wait_s > min(self._longest_wait_s, patience.left_s):
                    raise as_engine_error(refusal, options, texts_of(body), self._connection.key) from None
                again = False
                await patience.wait(asyncio.sleep(wait_s))
            except httpx2.HTTPError as error:
                if came or not again or not isinstance(error, BROKEN):
                    raise unreachable(error, options) from None
                again = False

    async def probe(self) -> ServerModels:
        """Return the server's models without running any. Raises EngineError if the server is unreachable or
        refuses.
        """
        return await self._connection.models()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return a reply of the server's own API (not OpenAI's) as JSON, or None if the path is missing or refused.

        Raises EngineError if the server is unreachable.
        """
        return await self._connection.post(f"{self._options.own_api}{path}", body)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connection.aclose()

    async def _answer(
        self, body: Mapping[str, Any], decoder: ChatStreamDecoder, patience: Patience
    ) -> AsyncGenerator[Delta]:
        """Make one attempt. Raises EngineError, ServerRefusal, or httpx2's errors."""
        async with (
            self._connection.response("POST", "chat/completions", patience, **json_of(body)) as response,
            aclosing(self._events(response, patience)) as events,
        ):
            while (data := await _next(events, decoder, patience)) is not None:
                length = decoder.length
                if (deltas := _fed(decoder, data)) is None:
                    break
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
            await _next(events, decoder, patience)  # a connection can be reused if it is read to the end

    async def _events(self, response: httpx2.Response, patience: Patience) -> AsyncGenerator[str]:
        """Yield the data of each event; a JSON body that is not a stream is one event."""
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
    """Return the next event's data, or None at the end and after a complete answer."""
    try:
        return await patience.wait(anext(events, None))
    except (EngineError, httpx2.HTTPError):
        if decoder.finished:
            return None
        raise


def _fed(decoder: ChatStreamDecoder, data: str) -> list[Delta] | None:
    """Return what an event adds to the answer; None for an error that follows a complete answer."""
    complete = decoder.finished
    try:
        return decoder.feed(data)
    except (ServerRefusal, StageFailed):
        if complete:
            return None
        raise
