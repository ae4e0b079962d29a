"""A running server instead of a local engine: requests use OpenAI's HTTP API, and answers stream back.

Each problem is one EngineError: unreachable, wrong key, or not a Parley server.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
import orjson

from app.access.api_keys import read_keys
from app.access.tls import own_certificate
from app.commands.wire import Completion, SpeechDecoder, completion_body, speech_body
from engine import EngineError, Ledger, ModelInfo, Output, Request, RequestError, Voice

CONNECT_S = 10.0
SILENT_S = 60.0
"""An engine ends a stalled answer after 30 s; under load a request may queue for longer."""
START_S = 300.0
"""Maximum wait for a server that still loads its models; the default of ``start_s`` in its configuration."""
RETRY_S = 1.0
"""Seconds between two requests to a server that still loads its models."""


class ServerError(EngineError):
    """The server is unreachable, or refuses."""

    code = "server_unreachable"


class ServerStarting(ServerError):
    """The server still loads its models."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server, and the file with its API key, if it requires one."""

    url: str
    key_file: str | None = None

    @property
    def root(self) -> str:
        """Return ``http(s)://host:port``. Raises ServerError."""
        parts = urlsplit(self.url)
        scheme = {"http": "http", "https": "https", "ws": "http", "wss": "https"}.get(parts.scheme)
        if scheme is None or not parts.netloc:
            raise ServerError(f"{self.url!r} is not a valid server URL: use one like http://127.0.0.1:8000")
        return f"{scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


class RemoteServer:
    """A server with an engine's interface: ``async with RemoteServer(address) as server:``.

    It waits at most ``start_s`` seconds for a server that still loads its models. A request fails if the server sends
    nothing for ``silent_s`` seconds.
    """

    def __init__(self, address: Address, silent_s: float = SILENT_S, start_s: float = START_S) -> None:
        self._address = address
        self._start_s = start_s
        self._http = _client(address, silent_s)

    async def __aenter__(self) -> Self:
        try:
            self.model = _model(await self._models(), self._address.url)
        except BaseException:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def _models(self) -> Any:
        """Return the server's list of models, once they are loaded. Raises ServerError."""
        latest_s = time.monotonic() + self._start_s
        while True:
            try:
                return await self._get("/v1/models")
            except ServerStarting:
                if time.monotonic() >= latest_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _get(self, path: str) -> Any:
        """Return the JSON at a path. Raises ServerError."""
        async with self._asked("GET", path) as response:
            body = await response.aread()
        try:
            return orjson.loads(body)
        except ValueError:
            raise _stranger(self._address.url) from None

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[ServerAnswer]:
        """Yield the answer to a request while the block lasts. Raises EngineError."""
        spoken = request.say is not None
        path = "/v1/audio/speech" if spoken else "/v1/chat/completions"
        body = speech_body(request, self.model) if spoken else completion_body(request, self.model)
        async with self._asked("POST", path, body) as response:
            yield ServerAnswer(response, SpeechDecoder() if spoken else Completion())

    @asynccontextmanager
    async def _asked(self, method: str, path: str, body: Any = None) -> AsyncGenerator[httpx2.Response]:
        """Yield a successful response. Raises ServerError."""
        content = None if body is None else orjson.dumps(body)
        try:
            async with self._http.stream(method, path, content=content) as response:
                if not response.is_success:
                    raise refusal(response.status_code, await response.aread(), self._address)
                yield response
        except httpx2.TransportError as error:
            raise unreachable(error, self._address.url) from None


class ServerAnswer:
    """The chunks of one answer, decoded from server-sent events as they arrive."""

    def __init__(self, response: httpx2.Response, decoder: SpeechDecoder | Completion) -> None:
        self._chunks = _chunks(response, decoder)
        self._decoder = decoder
        self.marks_ms: dict[str, float] = {}

    @property
    def ended(self) -> bool:
        """Whether the server has reported the end of the answer."""
        return self._decoder.ended

    @property
    def ledger(self) -> Ledger | None:
        """The server's ledger, available after the end of the answer."""
        return self._decoder.ledger

    def played(self) -> None:
        """Do nothing: over HTTP the server does not pace answers."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output:
        return await anext(self._chunks)


async def _chunks(response: httpx2.Response, decoder: SpeechDecoder | Completion) -> AsyncIterator[Output]:
    async for line in _lines(response.aiter_bytes()):
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            for chunk in decoder.decode(orjson.loads(line.removeprefix(b"data: "))):
                yield chunk
    if not decoder.ended:
        raise ServerError("the server ended the answer before it was complete")


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. The library's lines also end at separators that may occur in a JSON string."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")


def _client(address: Address, silent_s: float) -> httpx2.AsyncClient:
    """Create the HTTP client. Ignores proxies of the environment. Raises EngineError."""
    headers = {"content-type": "application/json"}
    if address.key_file is not None:
        headers["authorization"] = f"Bearer {read_keys(address.key_file, '--key-file')[0].value}"
    timeout = httpx2.Timeout(CONNECT_S, read=silent_s)
    return httpx2.AsyncClient(base_url=address.root, headers=headers, timeout=timeout, verify=trust(), trust_env=False)


def trust(strict: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities and this user's self-signed certificate, or
    everything.
    """
    context = ssl.create_default_context()
    if not strict:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if (own := own_certificate()) is not None:
        context.load_verify_locations(own)
    return context


def _model(listed: Any, url: str) -> ModelInfo:
    """Return a Parley server's description of its model. Raises ServerError for other servers."""
    try:
        model = listed["data"][0]
        about = model["parley"]
        return ModelInfo(
            name=model["id"],
            voices=tuple(Voice(one["id"], one["name"], one["language"]) for one in about["voice_details"]),
            languages=tuple(about["languages"]),
            abilities=frozenset(about["abilities"]),
        )
    except (LookupError, TypeError):
        raise _stranger(url) from None


def refusal(status: int, body: bytes, address: Address) -> EngineError:
    """Return the server's own message. A 404 means that it is not a Parley server."""
    try:
        error = orjson.loads(body)["error"]
        message = str(error["message"])
        code = error.get("code")
    except (ValueError, LookupError, TypeError, AttributeError):
        message = ""
        code = None
    if not message or status == 404:
        return _stranger(address.url, f" (HTTP status {status})")
    if status == 401:
        return ServerError(
            f"{address.url} requires an API key: pass the file that contains it with --key-file"
            if address.key_file is None
            else f"{address.url} rejected the key in {address.key_file}"
        )
    if code == "starting":
        return ServerStarting(message)
    return RequestError(message) if status < 500 else ServerError(message)


def _stranger(url: str, why: str = "") -> ServerError:
    return ServerError(f"the server at {url} is not a Parley server{why}")


def unreachable(error: httpx2.TransportError, url: str) -> ServerError:
    """Return the reason why no response arrived as one sentence."""
    match error:
        case httpx2.ConnectError() if "has expired" in str(error) or "not yet valid" in str(error):
            return ServerError(
                f"the certificate of {url} is not valid today ({datetime.date.today()} on this machine): check the "
                "clocks of both machines, then restart the server or renew its certificate"
            )
        case httpx2.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ServerError(
                f"the certificate of {url} is not trusted on this machine: set SSL_CERT_FILE to its file"
            )
        case httpx2.ConnectError() if urlsplit(url).scheme in ("https", "wss") and "SSL" in str(error):
            return ServerError(f"{url} does not use TLS: try http://")
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return ServerError(f"no server at {url}: start one with `parley serve`, or check the address")
        case httpx2.ReadTimeout():
            return ServerError(f"{url} sent nothing for {error.request.extensions['timeout']['read']:g} s")
        case httpx2.RemoteProtocolError() | httpx2.ReadError():
            return ServerError(f"{url} closed the connection: the server has stopped, or it uses https://")
        case _:
            return ServerError(f"the request to {url} failed: {error}")
