"""HTTP to one MCP server: its address resolved once and pinned, its origin alone, and no more bytes than are allowed.

A client's key is in the headers of these requests: none of them reaches another origin, whatever the server answers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx2

from app.mcp.trouble import ToolServerError

MOST_BYTES = 1 << 20
"""Bytes that a server may send while it lists its tools, or while it answers one call."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


async def resolve(url: httpx2.URL, private: bool, timeout_s: float) -> str:
    """The address of a server. Raises ToolServerError where one of its addresses is not public, unless ``private``."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(url.host, _port(url), type=socket.SOCK_STREAM)
    except OSError:  # a timeout is one, too
        raise ToolServerError(f"The MCP server's name {url.host!r} has no address.") from None
    addresses = [str(one[4][0]) for one in found]
    if not private and not all(is_public(one) for one in addresses):
        raise ToolServerError(
            f"The MCP server {url.host!r} has an address that is not public; its operator has to allow that "
            "(server.mcp: private)."
        )
    return addresses[0]


def is_public(text: str) -> bool:
    """Whether an address is one of the Internet's, also where it is wrapped in another kind of address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(one.is_global and not one.is_multicast for one in (address, *_within(address)))


def _within(address: Address) -> list[Address]:
    """The IPv4 addresses to which an IPv6 address leads."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    wrapped: list[Address | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        wrapped.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in wrapped if one is not None]


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that certificates are checked by: read once, which takes some tens of milliseconds."""
    return httpx2.create_ssl_context(trust_env=False)


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Requests to ``url``'s origin, at ``address``.

    ``failure`` is the first thing that went wrong, for libraries make something else of it; ``session_id`` is the one
    that the server gave.
    """

    def __init__(self, url: httpx2.URL, address: str) -> None:
        self._url = url
        self._address = address
        self._inner = httpx2.AsyncHTTPTransport(verify=trusted(), trust_env=False)
        self._left = MOST_BYTES
        self.failure: ToolServerError | None = None
        self.session_id: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != _origin(self._url):
            raise self.failed(ToolServerError("The MCP server asks for another server, which is not asked."))
        if request.method == "GET":  # a stream of what the server wants to say by itself: nobody listens
            return httpx2.Response(405, request=request)
        extensions = {**request.extensions, "sni_hostname": request.url.host}
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=self._address),
            headers=request.headers,  # with the Host of the name
            stream=request.stream,
            extensions=extensions,
        )
        response = await self._inner.handle_async_request(pinned)
        self._check(response)
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        body = _Counted(response.stream, self)
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=body, extensions=response.extensions
        )

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":  # small bytes may be large ones
            raise self.failed(ToolServerError("The MCP server answers with a content encoding that nobody asked for."))
        if status >= 400 and self.failure is None:
            self.failed(ToolServerError(f"The MCP server answers with HTTP {status}.", "http_error", status))
        elif 300 <= status < 400 and _leaves(response, self._url):
            self.failed(
                ToolServerError("The MCP server redirects elsewhere, which is not followed.", "http_error", status)
            )

    def failed(self, error: ToolServerError) -> httpx2.TransportError:
        """Note what went wrong; returns what the library understands."""
        self.failure = self.failure or error
        return httpx2.ReadError(str(error))

    def count(self, size: int) -> None:
        """Count so many bytes of a body. Raises httpx2.ReadError beyond the limit."""
        self._left -= size
        if self._left < 0:
            raise self.failed(ToolServerError(f"The MCP server sends more than {MOST_BYTES >> 10} kB."))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    """A body whose bytes are counted as they come."""

    def __init__(self, stream: httpx2.SyncByteStream | httpx2.AsyncByteStream, transport: PinnedTransport) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)
        self._stream = stream
        self._transport = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._transport.count(len(piece))
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
