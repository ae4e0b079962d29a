"""uvicorn's HTTP protocol, with a deadline for the first request: an endless handshake holds no socket for long.

A peer that takes nothing any more can be cut off (``parley.abort`` in the scope's extensions).
"""

from __future__ import annotations

import asyncio
from typing import cast

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

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
            extensions["parley.abort"] = {"call": self.transport.abort}

    def _expire(self) -> None:
        if self.scope is None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            self.transport.abort()
