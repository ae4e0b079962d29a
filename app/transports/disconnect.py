"""The end of a connection, and watches that end a session: time limit, drain, withdrawn key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from app.limits.principal import Principal
from app.realtime.protocol.dialect import Ended
from app.realtime.session import Session
from app.service import Service

GOING_AWAY = 1001
SLOW = NOT_ALLOWED = TOO_MUCH = 1008
TOO_LARGE = 1009
TRY_LATER = 1013
"""Close codes. TOO_MUCH is for a client that has exceeded its message rate for too long."""

How = Literal["goodbye", "cut", "gone"]

End = Callable[[str, str], None]
"""Ends a session with the code and message of an error event."""


class Disconnect(Exception):
    """Ends the connection: closes it with ``code``, aborts it if the client reads nothing, or releases it if it has
    left.
    """

    def __init__(self, code: int = 1000, reason: str = "the client disconnected", how: How = "gone") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.how: How = how

    @property
    def ended(self) -> Ended:
        """Return how the session ended."""
        if self.code != 1000:
            return "lost"
        return "closed" if self.how == "goodbye" else "left"


async def watch(session: Session, end: End, service: Service) -> None:
    """End the session when its time is over, or when the server drains and its answers have ended."""
    try:
        async with asyncio.timeout(service.settings.limits.session_s):
            await service.hosts.draining.wait()
    except TimeoutError:
        end("session_expired", "The session has reached its maximum duration.")
        raise Disconnect(GOING_AWAY, "the session has expired", "goodbye") from None
    try:
        async with asyncio.timeout(service.settings.drain_s):
            await session.quiet()
    except TimeoutError:
        end("server_shutting_down", "The server is shutting down.")
    raise Disconnect(GOING_AWAY, "the server is shutting down", "goodbye")


async def while_valid(end: End, maker: Principal) -> None:
    """End the session when the key or client secret that opened it is withdrawn."""
    await maker.withdrawn.wait()
    end("key_withdrawn", "The key that opened this session was withdrawn.")
    raise Disconnect(NOT_ALLOWED, "the key was withdrawn", "goodbye")


def first(group: BaseExceptionGroup[Disconnect]) -> Disconnect:
    """Return the reason to end; of several, the one that needs the least work. It keeps no traceback."""
    found = min(_each(group), key=lambda one: ("gone", "cut", "goodbye").index(one.how))
    return found.with_traceback(None)


def _each(error: Disconnect | BaseExceptionGroup[Disconnect]) -> list[Disconnect]:
    if isinstance(error, Disconnect):
        return [error]
    return [one for inner in error.exceptions for one in _each(inner)]
