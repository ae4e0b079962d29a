"""The address that a request comes from: its peer's, or the one that a proxy in the settings names. No other proxy is
believed."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.addresses import is_local, parsed, plain
from engine import ConfigError


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
