"""Client addresses: their canonical form, the subscriber that owns them, and trusted reverse proxies.

A request's address is its peer's, or the one that a trusted proxy reports. Other proxies are not believed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from engine import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def plain(address: str) -> str:
    """Return an address in canonical form: a socket on ``::`` sees IPv4 clients as ``::ffff:a.b.c.d``."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def parsed(address: str) -> Address | None:
    """Parse an address without its zone. Returns None for anything else, such as a socket without an address."""
    try:
        return ipaddress.ip_address(plain(address).partition("%")[0])
    except ValueError:
        return None


def is_local(address: str) -> bool:
    """Return whether an address belongs to this machine: loopback, or no address at all."""
    one = parsed(address)
    return one is None or one.is_loopback


def subscriber(address: str) -> str:
    """Return one name for all addresses of a subscriber: an IPv4 address, or the first 64 bits of IPv6."""
    one = parsed(address)
    if one is None:
        return address
    return str(one) if one.version == 4 else str(ipaddress.ip_network((one, 64), strict=False))


def is_public(address: str) -> bool:
    """Return whether an address is public, also if it is embedded in an IPv6 address."""
    one = parsed(address)
    return one is not None and all(part.is_global and not part.is_multicast for part in (one, *_within(one)))


def _within(address: Address) -> list[Address]:
    """Return the IPv4 addresses embedded in an IPv6 address other than a mapped one, which ``parsed`` unwraps."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    wrapped: list[Address | None] = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        wrapped.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in wrapped if one is not None]


def may_name(client: str, address: str) -> bool:
    """Return whether the server may send to ``address``, which a client at ``client`` supplied.

    Everyone may supply a public address, but only a client on a private network or on this machine a private one, and
    only a client on this machine a loopback one. Otherwise a client could make the server reach machines that the
    client itself cannot reach. Multicast addresses are never accepted. A client without an address is on this machine.
    """
    named, own = parsed(address), parsed(client)
    if named is None or named.is_multicast:
        return False
    if is_public(address) or (own is None and not named.is_link_local):
        return True
    if own is None or own.is_global:
        return False
    if named.is_loopback or named.is_unspecified:  # Linux treats 0.0.0.0 as loopback
        return own.is_loopback
    return not named.is_link_local or own.is_link_local


class Peers:
    """Outermost ASGI middleware: sets the scope's ``client`` and ``scheme`` to values that the rest may trust.

    In ``X-Forwarded-For`` the last address counts that is not a trusted proxy's. The client may have written everything
    before it.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app = _plainly(app)
        if trusted:
            behind: Any = ProxyHeadersMiddleware(cast("Any", self._app), list(trusted))
            self._app = _plainly(behind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _plainly(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that it receives the client's address in canonical form."""

    async def plainly(scope: Scope, receive: Receive, send: Send) -> None:
        if (client := scope.get("client")) is not None:
            scope["client"] = (plain(client[0]), client[1])
        await app(scope, receive, send)

    return plainly


def shared_by(trusted: Sequence[str]) -> Callable[[str], bool]:
    """Return a function: may many clients share this peer address?

    True for trusted proxies and for this machine, where a proxy may run.
    """
    named = within(trusted)
    return lambda peer: is_local(peer) or named(peer)


def own_address(trusted: Sequence[str]) -> Callable[[str], str]:
    """Return a function from a peer's address to its client's address, or "" if the peer is a trusted proxy."""
    named = within(trusted)
    return lambda peer: "" if named(peer) else plain(peer)


def within(places: Sequence[str]) -> Callable[[str], bool]:
    """Return a function: does this address belong to one of these addresses and networks?"""
    networks = [ipaddress.ip_network(one) for one in places]

    def is_within(address: str) -> bool:
        one = parsed(address)
        return one is not None and any(one in network for network in networks)

    return is_within


def check_proxies(proxies: Sequence[str]) -> None:
    """Raise ConfigError for anything that is neither an address nor a network."""
    for i, one in enumerate(proxies):
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            message = f"must be an address or a network, such as 10.0.0.7 or 10.0.0.0/24: {error}"
            raise ConfigError(f"server.trusted_proxies[{i}]: {message}") from None
