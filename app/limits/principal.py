"""The senders of requests, as far as keys and addresses show: what they make is theirs. Knows no request and no
route."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from app.limits.fair_scheduler import LoopTimeBudget


@dataclass(frozen=True, slots=True, eq=False)
class Principal:
    """The sender of one request."""

    owner: str = ""
    """The name of the key, or of the key behind the client secret; empty where no keys are set."""
    secret: Secret | None = None
    """The client secret that the request came with, if it came with one."""
    address: str = ""
    loop_time: LoopTimeBudget | None = field(default=None, repr=False)
    """The socket's part of the event loop's time, where the request is a socket."""
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """The key or the client secret was withdrawn: what was opened with it ends."""

    def reaches(self, maker: Principal) -> bool:
        """Whether things that ``maker`` made are this caller's, too: a key has those of its secrets, a secret only its
        own."""
        return self.owner == maker.owner and self.secret in (None, maker.secret)


@dataclass(frozen=True, slots=True, eq=False)
class Secret:
    """A client secret (``app.access.client_secrets``). Its sessions start with the settings in ``session``."""

    value: str = field(repr=False)
    session: dict[str, Any]
    expires_s: float
    """The end of its life on the monotonic clock."""
    maker: Principal = field(default_factory=Principal)
