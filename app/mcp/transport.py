"""HTTP to one MCP server: pinned to its resolved address and its origin, with limits on what it may send.

Requests carry the client's credentials in their headers, so none may reach another origin, whatever the server
responds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx2

from app.client_address import is_public
from app.mcp.trouble import ToolServerError

MOST_BYTES = 1 << 20
"""Maximum bytes that a server may send while it lists its tools or answers one call."""

MOST_LINES = 8192
"""Maximum line ends of a server's event streams during a visit. An event has three lines, and each costs a step of the
parser, however short it is."""

MOST_VALUES = 1 << 16
"""Maximum JSON values that a server may send during a visit, counted by brackets, braces and commas. The largest valid
result, 64 kB both as text and as JSON, has fewer."""


async def resolve(url: httpx2.URL, private: bool, timeout_s: float) -> str:
    """Resolve a server's address. Raises ToolServerError if one of its addresses is not public, unless ``private``."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(url.host, _port(url), type=socket.SOCK_STREAM)
    except OSError:  # includes TimeoutError
        raise ToolServerError(f"The MCP server's host name {url.host!r} can't be resolved.") from None
    addresses = [str(one[4][0]) for one in found]
    if not private and not all(is_public(one) for one in addresses):
        raise ToolServerError(
            f"The MCP server {url.host!r} has a private address; this server's operator must allow that "
            "(server.mcp: private: true)."
        )
    return addresses[0]


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


@cache
def trusted() -> ssl.SSLContext:
    """Return a TLS context with the system's authorities. Loaded once, which takes tens of milliseconds."""
    return httpx2.create_ssl_context(trust_env=False)


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the origin of ``url`` at the fixed ``address``.

    ``failure`` is the first error, since libraries replace it with their own. ``session_id`` is the MCP session id from
    the server.
    """

    def __init__(self, url: httpx2.URL, address: str) -> None:
        self._url = url
        self._address = address
        self._inner = httpx2.AsyncHTTPTransport(verify=trusted(), trust_env=False)
        self._left = {"kB": MOST_BYTES, "lines": MOST_LINES, "values": MOST_VALUES}
        self.failure: ToolServerError | None = None
        self.session_id: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != _origin(self._url):
            raise self.failed(ToolServerError("The MCP server points to another server, which is not followed."))
        if request.method == "GET":  # an event stream for messages that the server starts: not used
            return httpx2.Response(405, request=request)
        extensions = {**request.extensions, "sni_hostname": request.url.host}
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=self._address),
            headers=request.headers,  # includes the Host header with the name
            stream=request.stream,
            extensions=extensions,
        )
        response = await self._inner.handle_async_request(pinned)
        self._check(response)
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        lines = not response.headers.get("content-type", "").startswith("application/json")
        body = _Counted(response.stream, self, lines)
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=body, extensions=response.extensions
        )

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        # compressed bytes could expand without limit
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self.failed(ToolServerError("The MCP server's response has an unrequested content encoding."))
        if status >= 400 and self.failure is None:
            self.failed(ToolServerError(f"The MCP server responded with HTTP {status}.", "http_error", status))
        elif 300 <= status < 400 and _leaves(response, self._url):
            self.failed(
                ToolServerError("The MCP server redirects to another origin; not followed.", "http_error", status)
            )

    def failed(self, error: ToolServerError) -> httpx2.TransportError:
        """Record the first error. Returns the exception that the library expects."""
        self.failure = self.failure or error
        return httpx2.ReadError(str(error))

    def count(self, piece: bytes, lines: bool) -> None:
        """Count what a received piece contains before it is parsed. Raises httpx2.ReadError beyond a limit."""
        self._take("kB", len(piece), MOST_BYTES >> 10)
        self._take("values", sum(map(piece.count, (b",", b"[", b"{"))), MOST_VALUES)
        if lines:
            self._take("lines", piece.count(b"\n") + piece.count(b"\r"), MOST_LINES)

    def _take(self, what: str, count: int, most: int) -> None:
        self._left[what] -= count
        if self._left[what] < 0:
            raise self.failed(ToolServerError(f"The MCP server sent more than {most} {what}."))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    """A body that is counted while it arrives; ``lines`` says whether its lines are counted too."""

    def __init__(
        self, stream: httpx2.SyncByteStream | httpx2.AsyncByteStream, transport: PinnedTransport, lines: bool
    ) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)
        self._stream = stream
        self._transport = transport
        self._lines = lines

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._transport.count(piece, self._lines)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, _port(url)


def _leaves(response: httpx2.Response, url: httpx2.URL) -> bool:
    try:
        return _origin(url.join(response.headers.get("location", ""))) != _origin(url)
    except httpx2.InvalidURL:
        return True
