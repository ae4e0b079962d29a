"""A running server in the place of an engine of one's own: requests go out over OpenAI's HTTP API, answers stream back.

Knows no terminal. Each mistake is one EngineError: nobody there, a wrong key, something that is no Parley server.
"""

from __future__ import annotations

import datetime
import ssl
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
"""An engine ends a stalled answer after 30 s; under load a request may wait in line for longer."""


class ServerError(EngineError):
    """The server can't be reached, or refuses."""

    code = "server_unreachable"


@dataclass(frozen=True, slots=True)
class Address:
    """A server, and the file that holds its API key if it asks for one."""

    url: str
    key_file: str | None = None

    @property
    def root(self) -> str:
        """``http(s)://host:port``. Raises ServerError."""
        parts = urlsplit(self.url)
        scheme = {"http": "http", "https": "https", "ws": "http", "wss": "https"}.get(parts.scheme)
        if scheme is None or not parts.netloc:
            raise ServerError(f"{self.url!r} is no address of a server: give one like http://127.0.0.1:8000")
        return f"{scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


class RemoteServer:
    """``async with Server(address) as server:`` has a model, and answers requests as an Engine does.

    A server that says nothing for ``silent_s`` seconds while it answers is given up.
    """

    def __init__(self, address: Address, silent_s: float = SILENT_S) -> None:
        self._address = address
        self._http = _client(address, silent_s)

    async def __aenter__(self) -> Self:
        try:
            self.model = _model(await self._get("/v1/models"), self._address.url)
        except BaseException:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def _get(self, path: str) -> Any:
        """The JSON at a path. Raises ServerError."""
        async with self._asked("GET", path) as response:
            body = await response.aread()
        try:
            return orjson.loads(body)
        except ValueError:
            raise _stranger(self._address.url) from None

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[ServerAnswer]:
        """The answer to a request while the block lasts. Raises EngineError."""
        spoken = request.say is not None
        path = "/v1/audio/speech" if spoken else "/v1/chat/completions"
        body = speech_body(request, self.model) if spoken else completion_body(request, self.model)
        async with self._asked("POST", path, body) as response:
            yield ServerAnswer(response, SpeechDecoder() if spoken else Completion())

    @asynccontextmanager
    async def _asked(self, method: str, path: str, body: Any = None) -> AsyncGenerator[httpx2.Response]:
        """A response that is no refusal. Raises ServerError."""
        content = None if body is None else orjson.dumps(body)
        try:
            async with self._http.stream(method, path, content=content) as response:
                if not response.is_success:
                    raise refusal(response.status_code, await response.aread(), self._address)
                yield response
        except httpx2.TransportError as error:
            raise unreachable(error, self._address.url) from None


class ServerAnswer:
    """The chunks of one answer, decoded from server-sent events as they come."""

    def __init__(self, response: httpx2.Response, decoder: SpeechDecoder | Completion) -> None:
        self._chunks = _chunks(response, decoder)
        self._decoder = decoder
        self.marks_ms: dict[str, float] = {}

    @property
    def ended(self) -> bool:
        """Whether the server has said that the answer is over: nothing may follow."""
        return self._decoder.ended

    @property
    def ledger(self) -> Ledger | None:
        """The server's own, known once the answer has ended."""
        return self._decoder.ledger

    def played(self) -> None:
        """Do nothing: the server paces nothing over HTTP, so nobody needs to know."""

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
    """Yield the whole lines of a stream. The library's also end at separators that may stand in a JSON string."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")


def _client(address: Address, silent_s: float) -> httpx2.AsyncClient:
    """Raises EngineError. No proxy of the environment is asked: servers of one's own lie behind none."""
    headers = {"content-type": "application/json"}
    if address.key_file is not None:
        headers["authorization"] = f"Bearer {read_keys(address.key_file, '--key-file')[0].value}"
    timeout = httpx2.Timeout(CONNECT_S, read=silent_s)
    return httpx2.AsyncClient(base_url=address.root, headers=headers, timeout=timeout, verify=trust(), trust_env=False)


def trust(strict: bool = True) -> ssl.SSLContext:
    """The system's authorities, and the certificate that a server of this user signed for itself; or anybody."""
    context = ssl.create_default_context()
    if not strict:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if (own := own_certificate()) is not None:
        context.load_verify_locations(own)
    return context


def _model(listed: Any, url: str) -> ModelInfo:
    """Return a Parley server's description of its model. Raises ServerError for another make of server."""
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
    """The server's own words; a path that it does not know is one that every Parley server has."""
    try:
        message = str(orjson.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = ""
    if not message or status == 404:
        return _stranger(address.url, f" (it answers {status})")
    if status == 401:
        return ServerError(
            f"{address.url} takes no request without its key: give the file that holds it with --key-file"
            if address.key_file is None
            else f"{address.url} does not know the key in {address.key_file}"
        )
    return RequestError(message) if status < 500 else ServerError(message)


def _stranger(url: str, why: str = "") -> ServerError:
    return ServerError(f"the server at {url} is not a Parley server{why}")


def unreachable(error: httpx2.TransportError, url: str) -> ServerError:
    """Explain why no answer came, in one sentence."""
    match error:
        case httpx2.ConnectError() if "has expired" in str(error) or "not yet valid" in str(error):
            return ServerError(
                f"{url} shows a certificate that is not valid today ({datetime.date.today()} on this machine): set the "
                "clocks of both machines, then restart the server or renew its certificate"
            )
        case httpx2.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ServerError(
                f"{url} shows a certificate that this machine does not trust: name its file in SSL_CERT_FILE"
            )
        case httpx2.ConnectError() if urlsplit(url).scheme in ("https", "wss") and "SSL" in str(error):
            return ServerError(f"{url} does not speak TLS: its address may begin with http://")
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return ServerError(f"there is no server at {url}: start one with `parley serve`, or look at the address")
        case httpx2.ReadTimeout():
            return ServerError(f"{url} has said nothing for {error.request.extensions['timeout']['read']:g} s")
        case httpx2.RemoteProtocolError() | httpx2.ReadError():
            return ServerError(f"{url} ended the connection: the server is gone, or its address begins with https://")
        case _:
            return ServerError(f"{url} cannot be asked: {error}")
