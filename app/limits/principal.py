"""The sender of a request, identified by key and address: the owner of all objects that the request creates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.limits.fair_scheduler import LoopTimeBudget

_SECRET = 1024
"""Bytes of a secret without settings: the objects, and its entries in tables."""


@dataclass(frozen=True, slots=True, eq=False)
class Principal:
    """The sender of one request."""

    owner: str = ""
    """The name of the key, or of the key that made the client secret; empty if the server requires no keys."""
    secret: Secret | None = None
    """The client secret that the request used, if any."""
    address: str = ""
    loop_time: LoopTimeBudget | None = field(default=None, repr=False)
    """The WebSocket connection's share of the event loop's time, if the request is a WebSocket."""
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when the key or client secret is withdrawn; everything opened with it then ends."""

    def reaches(self, maker: Principal) -> bool:
        """Return whether this caller may use objects that ``maker`` created.

        A key reaches everything created with its client secrets. A secret reaches only what was created with itself.
        """
        return self.owner == maker.owner and self.secret in (None, maker.secret)


@dataclass(frozen=True, slots=True, eq=False)
class Secret:
    """A client secret (``app.access.client_secrets``)."""

    value: str = field(repr=False)
    settings: bytes
    """The initial settings of its sessions, as JSON: decoded, they could take 25 times as many bytes."""
    expires_s: float
    """Expiry time in monotonic seconds."""
    maker: Principal = field(default_factory=Principal)

    @property
    def session(self) -> dict[str, Any]:
        """Return the initial settings of its sessions."""
        return orjson.loads(self.settings)

    @property
    def size(self) -> int:
        """Return the bytes that it takes."""
        return _SECRET + len(self.settings)
