"""HTTP connections to one server. Independent of the servers' APIs.

Requests and answers are never logged. A redirect is an error: requests go to no other address.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from engine.deployment.secret_file import read_key
from engine.worker.remote.options import ServerOptions
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import ServerRefusal, as_engine_error, message_of, unreachable

CONNECT_S = 5.0
PROBE_S = 5.0
WARM_S = 300.0
"""Seconds that an idle connection is kept open; most servers close it earlier."""
SOON_S = 3.0
"""The longest Retry-After, in seconds, after which a request is repeated. For a longer one, the user gets an error."""
LARGEST_BODY = 1 << 20
"""Maximum bytes of a body that is read as a whole."""
LARGEST_ERROR = 1 << 16
BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError, httpx2.CloseError)
"""Errors of an idle connection that the server has closed."""

logging.getLogger("httpx2").setLevel(logging.WARNING)  # at INFO it logs each request's address


@dataclass(frozen=True, slots=True)
class ServerModels:
    """The models that a server lists."""

    names: tuple[str, ...] = ()
    owner: str = ""
    """The ``owned_by`` of the first one, which identifies the kind of server."""


class ServerConnections:
    """The connections to a server, kept open between requests. Call ``aclose`` at the end.

    Raises ConfigError for an invalid key file. The file is only read here.
    """

    def __init__(self, options: ServerOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._now = now
        self.key = "" if options.key_file is None else read_key(options.key_file)
        credentials = {"authorization": f"Bearer {self.key}"} if self.key else {}
        self._http = httpx2.AsyncClient(
            base_url=options.base,
            headers={"accept-encoding": "identity", **credentials},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=WARM_S),
            verify=ssl.create_default_context(),
            trust_env=options.env_proxies,
            follow_redirects=False,
        )

    def patience(self, first_s: float, stall_s: float) -> Patience:
        """Return the deadlines for one answer."""
        return Patience(first_s, stall_s, self._options.who, self._now)

    @asynccontextmanager
    async def answer(
        self, path: str, patience: Patience, texts: Iterable[str], **sent: Any
    ) -> AsyncGenerator[httpx2.Response]:
        """Send a POST request and yield the response. Leaving the block early closes its connection.

        The request is repeated once if the connection broke before the response, or if the server asks for a short
        wait. It is never repeated once a response has begun. Raises one EngineError, whose message contains nothing of
        ``texts``.
        """
        begun, again = False, True
        while not begun:
            try:
                async with self.response("POST", path, patience, **sent) as response:
                    begun = True
                    yield response
            except ServerRefusal as refusal:
                wait_s = refusal.retry_after_s
                if begun or not again or wait_s is None or wait_s > min(SOON_S, patience.left_s):
                    raise as_engine_error(refusal, self._options, texts, self.key) from None
                again = False
                await patience.wait(asyncio.sleep(wait_s))
            except httpx2.HTTPError as error:
                if begun or not again or not isinstance(error, BROKEN):
                    raise unreachable(error, self._options) from None
                again = False

    @asynccontextmanager
    async def response(
        self, method: str, path: str, patience: Patience, **sent: Any
    ) -> AsyncGenerator[httpx2.Response]:
        """Send a request once, and yield a response with status 200. It is closed at the end of the block.

        Args:
            method: The HTTP method.
            path: The path below the API's address.
            patience: The deadlines.
            sent: Further arguments of httpx2's ``build_request``.

        Raises:
            ServerRefusal: The status is not 200.
            Stalled: The response is late.
            httpx2.HTTPError: The connection failed.
        """
        request = self._http.build_request(method, path, **sent)
        response = await patience.wait(self._http.send(request, stream=True))
        try:
            if response.status_code != 200:
                said, kind = message_of(await body_of(response, LARGEST_ERROR, patience))
                raise ServerRefusal(response.status_code, said, kind, _retry_after_s(response))
            yield response
        finally:
            await response.aclose()

    async def models(self) -> ServerModels:
        """Return the server's models (``GET /models``), without running any of them.

        The list is empty if the server has no such path. Raises EngineError if the server refuses or cannot be reached.
        """
        patience = self.patience(PROBE_S, PROBE_S)
        try:
            async with self.response("GET", "models", patience) as response:
                return _models(await body_of(response, LARGEST_BODY, patience))
        except ServerRefusal as refusal:
            if refusal.status in (404, 405):
                return ServerModels()
            raise as_engine_error(refusal, self._options, (), self.key) from None
        except httpx2.HTTPError as error:
            raise unreachable(error, self._options) from None

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """Return a small JSON reply; None if the server has no such path, refuses, or returns something else.

        Raises EngineError if the server cannot be reached.
        """
        patience = self.patience(PROBE_S, PROBE_S)
        try:
            async with self.response("POST", url, patience, **json_of(body)) as response:
                return msgspec.json.decode(await body_of(response, LARGEST_BODY, patience))
        except (ServerRefusal, msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        except httpx2.HTTPError as error:
            raise unreachable(error, self._options) from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


def json_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request arguments for a JSON body."""
    return {"content": msgspec.json.encode(body), "headers": {"content-type": "application/json"}}


async def body_of(response: httpx2.Response, largest: int, patience: Patience) -> bytes:
    """Return a body, or its first ``largest`` bytes."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as pieces:
        while len(body) < largest and (piece := await patience.wait(anext(pieces, None))) is not None:
            body += piece
    return bytes(body[:largest])


def kind_of(response: httpx2.Response) -> str:
    """Return the media type in the response's headers, like ``audio/pcm``."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _retry_after_s(response: httpx2.Response) -> float | None:
    """Return the Retry-After of a busy server in seconds; None if there is none, or if it is a date."""
    given = response.headers.get("retry-after", "").strip()
    return float(given) if response.status_code in (429, 503) and given.isascii() and given.isdigit() else None


def _models(body: bytes) -> ServerModels:
    try:
        listed = msgspec.json.decode(body)["data"]
        return ServerModels(
            tuple(str(one["id"]) for one in listed), str(listed[0].get("owned_by", "")) if listed else ""
        )
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError, TypeError, AttributeError):
        return ServerModels()
