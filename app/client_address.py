"""Addresses of clients: their canonical form, the subscriber that owns them, and trusted reverse proxies.

A request comes from its peer, or from the address that a trusted proxy reports. No other proxy is believed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from engine import ConfigError


def plain(address: str) -> str:
    """The address as everything else knows it: a socket on ``::`` sees IPv4 clients as ``::ffff:a.b.c.d``."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without its zone; None for what is none, as of a socket that has no address."""
    try:
        return ipaddress.ip_address(plain(address).partition("%")[0])
    except ValueError:
        return None


def is_local(address: str) -> bool:
    """Whether it is this very machine's: its loopback, or no address at all."""
    one = parsed(address)
    return one is None or one.is_loopback


def subscriber(address: str) -> str:
    """Return what stands for all addresses of one subscriber: one IPv4 address, or 64 bits of IPv6."""
    one = parsed(address)
    if one is None:
        return address
    return str(one) if one.version == 4 else str(ipaddress.ip_network((one, 64), strict=False))


class Peers:
    """ASGI middleware outside the others: the rest may believe the scope's ``client`` and ``scheme``.

    Of ``X-Forwarded-For`` counts the last address that is no trusted proxy's: what stands before it, the client may
    have written itself.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app = _plainly(app)
        if trusted:
            behind: Any = ProxyHeadersMiddleware(cast("Any", self._app), list(trusted))
            self._app = _plainly(behind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _plainly(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that it gets the client's address as everything else knows it."""

    async def plainly(scope: Scope, receive: Receive, send: Send) -> None:
        if (client := scope.get("client")) is not None:
            scope["client"] = (plain(client[0]), client[1])
        await app(scope, receive, send)

    return plainly


def shared_by(trusted: Sequence[str]) -> Callable[[str], bool]:
    """Whether many clients may stand behind a peer's address: a trusted proxy's, and this very machine's, where one or
    a program that speaks for many may run."""
    named = _named(trusted)
    return lambda peer: is_local(peer) or named(peer)


def own_address(trusted: Sequence[str]) -> Callable[[str], str]:
    """Return a function from a peer's address to what is known of its client: nothing, "", where it is a trusted
    proxy's."""
    named = _named(trusted)
    return lambda peer: "" if named(peer) else plain(peer)


def _named(trusted: Sequence[str]) -> Callable[[str], bool]:
    """Whether a peer's address is one of the trusted proxies'."""
    networks = [ipaddress.ip_network(one) for one in trusted]
    return lambda peer: any(parsed(peer) in network for network in networks)


def check_proxies(proxies: Sequence[str]) -> None:
    """Raises ConfigError for what is neither an address nor a network."""
    for i, one in enumerate(proxies):
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            message = f"must be an address or a network, like 10.0.0.7 or 10.0.0.0/24: {error}"
            raise ConfigError(f"server.trusted_proxies[{i}]: {message}") from None
