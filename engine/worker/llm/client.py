"""A client of one OpenAI-compatible chat completions server: Ollama, LM Studio, llama.cpp, vLLM, SGLang, hosted ones.

It asks, and yields the answer as the engine's chunks. It knows no stage and no request of the engine. Nothing of what
is asked or answered is logged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from engine.errors import EngineError
from engine.key import read_key
from engine.worker.llm.decoder import Decoder
from engine.worker.llm.deltas import Delta
from engine.worker.llm.fields import refused_by, without
from engine.worker.llm.messages import texts_of
from engine.worker.llm.options import Options
from engine.worker.llm.patience import Patience
from engine.worker.llm.refusals import Refusal, as_engine_error, message_of, stranger, unreachable

CONNECT_S = 5.0
PROBE_S = 5.0
WARM_S = 300.0
"""How long an idle connection is kept; most servers close it earlier."""
SOON_S = 3.0
"""A server that asks for so much time at most is asked again; for longer, the user is told."""
TAIL_S = 1.0
"""How long the usage, and the end of the stream, may follow a complete answer."""
LARGEST_EVENT = 1 << 20
"""Bytes of one event, or of a body that is no stream: a token has a few."""
LARGEST_ERROR = 1 << 16

_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError, httpx2.CloseError)


logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells each request's address


@dataclass(frozen=True, slots=True)
class Models:
    """What a server lists: its models' ``names``, and the ``owner`` that it gives, which tells what server it is."""

    names: tuple[str, ...] = ()
    owner: str = ""


class Client:
    """Keeps its connections warm between answers. Needs ``aclose`` at the end.

    Raises ConfigError for a key file that can't be used, at once; it is read again by nobody.
    """

    def __init__(self, options: Options, now: Callable[[], float] = time.monotonic) -> None:
        self._options, self._now = options, now
        self._key = "" if options.key_file is None else read_key(options.key_file).value
        self._refused = frozenset[str]()
        self._http = httpx2.AsyncClient(
            base_url=options.base,
            headers={"accept-encoding": "identity", "content-type": "application/json", **self._credentials()},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=WARM_S),
            verify=ssl.create_default_context(),
            trust_env=options.env_proxies,
            follow_redirects=False,
        )

    async def answer(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        """The answer to a request's body; its Usage is last. To close this generator aborts the answer at the server.

        ``name`` begins the ids of tool calls that the server gives none; ``begun`` is of a body that asks for the rest
        of an answer, which may be nothing. Raises one EngineError. Before the first
        delta the server is asked once more where the connection broke, or where it asks for a moment; never after it.
        """
        options = self._options
        patience = Patience(
            options.first_token_s, options.stall_s, f"The language model's server at {options.host}", self._now
        )
        doubted, again, came = frozenset[str](), True, False
        while True:
            sent = without(body, self._refused | doubted)
            try:
                async with aclosing(self._answer(sent, Decoder(name, begun), patience)) as deltas:
                    async for delta in deltas:
                        came, self._refused = True, self._refused | doubted
                        yield delta
                return
            except Refusal as refusal:
                if not came and (more := refused_by(refusal, sent)):
                    doubted |= more
                    continue
                wait_s = refusal.retry_after_s
                if came or not again or wait_s is None or wait_s > min(SOON_S, patience.left_s):
                    raise as_engine_error(refusal, options, texts_of(body), self._key) from None
                again = False
                await patience.wait(asyncio.sleep(wait_s))
            except httpx2.HTTPError as error:
                if came or not again or not isinstance(error, _BROKEN):
                    raise unreachable(error, options) from None
                again = False

    async def probe(self) -> Models:
        """The server's models, without asking any of them anything: ``GET /models``.

        No names where the server is there and lists none. Raises EngineError where it is not to be reached, or refuses.
        """
        patience = Patience(PROBE_S, PROBE_S, f"The language model's server at {self._options.host}", self._now)
        try:
            async with self._response("GET", "models", None, patience) as response:
                return _models(await _body(response, LARGEST_EVENT, patience))
        except Refusal as refusal:
            if refusal.status in (404, 405):
                return Models()
            raise as_engine_error(refusal, self._options, (), self._key) from None
        except httpx2.HTTPError as error:
            raise unreachable(error, self._options) from None

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """A reply of the server's own API, beside OpenAI's, as JSON; None where there is no such, or it refuses.

        Raises EngineError where the server is not to be reached.
        """
        patience = Patience(PROBE_S, PROBE_S, f"The language model's server at {self._options.host}", self._now)
        url, content = f"{self._options.own_api}{path}", msgspec.json.encode(body)
        try:
            async with self._response("POST", url, content, patience) as response:
                return msgspec.json.decode(await _body(response, LARGEST_EVENT, patience))
        except (Refusal, msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        except httpx2.HTTPError as error:
            raise unreachable(error, self._options) from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def _credentials(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}"} if self._key else {}

    async def _answer(self, body: Mapping[str, Any], decoder: Decoder, patience: Patience) -> AsyncGenerator[Delta]:
        """One try. Raises EngineError, Refusal, or httpx2's errors."""
        content = msgspec.json.encode(body)
        async with (
            self._response("POST", "chat/completions", content, patience) as response,
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

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, content: bytes | None, patience: Patience
    ) -> AsyncGenerator[httpx2.Response]:
        """A response with status 200, closed at the end, read or not. Raises Refusal for another one."""
        request = self._http.build_request(method, path, content=content)
        response = await patience.wait(self._http.send(request, stream=True))
        try:
            if response.status_code != 200:
                said, kind = message_of(await _body(response, LARGEST_ERROR, patience))
                raise Refusal(response.status_code, said, kind, _retry_after_s(response))
            yield response
        finally:
            await response.aclose()

    async def _events(self, response: httpx2.Response, patience: Patience) -> AsyncGenerator[str]:
        """The data of each event; a body that is JSON and no stream is one."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            response.encoding = "utf-8"  # by the standard, whatever the head says
            async for event in httpx2.EventSource(response, LARGEST_EVENT):
                if event.data:
                    yield event.data
        elif kind.endswith("json"):
            yield (await _body(response, LARGEST_EVENT, patience)).decode("utf-8", "replace")
        else:
            raise stranger(self._options)


async def _next(events: AsyncIterator[str], decoder: Decoder, patience: Patience) -> str | None:
    """The next event's data. None at the end, and where nothing comes behind a complete answer."""
    try:
        return await patience.wait(anext(events, None))
    except (EngineError, httpx2.HTTPError):
        if decoder.finished:
            return None
        raise


async def _body(response: httpx2.Response, largest: int, patience: Patience) -> bytes:
    """A whole body; of a larger one, so much."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as pieces:
        while len(body) < largest and (piece := await patience.wait(anext(pieces, None))) is not None:
            body += piece
    return bytes(body[:largest])


def _retry_after_s(response: httpx2.Response) -> float | None:
    """Of a server that is busy; None where it asks for no time, or not in seconds."""
    given = response.headers.get("retry-after", "").strip()
    return float(given) if response.status_code in (429, 503) and given.isascii() and given.isdigit() else None


def _models(body: bytes) -> Models:
    try:
        listed = msgspec.json.decode(body)["data"]
        return Models(tuple(str(one["id"]) for one in listed), str(listed[0].get("owned_by", "")) if listed else "")
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError, TypeError, AttributeError):
        return Models()
