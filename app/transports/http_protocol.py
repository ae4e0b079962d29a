"""uvicorn's HTTP protocol, with a deadline for the first request: an endless handshake holds no socket for long."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HELLO_S = 10.0
"""From the connection to the end of its first request's head: a slow phone needs one or two."""


class HttpProtocol(H11Protocol):
    """One connection, until it is upgraded."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._hello = self.loop.call_later(HELLO_S, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hello.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if self.scope is None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            self.transport.abort()
