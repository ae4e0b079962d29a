"""Calls that their exchange has not confirmed yet: few for each address, and none of them holds a session.

An exchange confirms at once, so the oldest unconfirmed call is the least likely to be a real one. A new call ends it
where there are too many, so a flood of calls that nobody confirms never keeps out a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from app.client_address import subscriber

EACH = 32
"""Unconfirmed calls of one address: more than a trunk has within a round trip."""

ALL = 128
"""Unconfirmed calls of all addresses."""


def most_unconfirmed(ports: Sequence[int]) -> tuple[int, int]:
    """Return the maximum numbers for one address and for all. Each call may hold one of the UDP ports from the first to
    the last of ``ports``, if these are limited: at most a quarter of them is used.
    """
    quarter = max(1, (ports[1] - ports[0] + 1) // 4) if ports else ALL
    return min(EACH, quarter), min(ALL, quarter)


class UnconfirmedCalls:
    """The unconfirmed calls of one server, the oldest first."""

    def __init__(self, each: int = EACH, all: int = ALL) -> None:
        self._each = each
        self._all = all
        self._calls = dict[asyncio.Timeout, str]()

    def __len__(self) -> int:
        return len(self._calls)

    @asynccontextmanager
    async def confirming(self, address: str, within_s: float) -> AsyncGenerator[None]:
        """Hold a place while the block waits for the exchange's confirmation.

        Raises TimeoutError after ``within_s`` seconds, or earlier if newer calls need the place.
        """
        name = subscriber(address)
        mine = [one for one, other in self._calls.items() if other == name]
        if len(mine) >= self._each:
            self._end(mine[0])
        elif len(self._calls) >= self._all:
            self._end(next(iter(self._calls)))
        async with asyncio.timeout(within_s) as deadline:
            self._calls[deadline] = name
            try:
                yield
            finally:
                self._calls.pop(deadline, None)

    def _end(self, deadline: asyncio.Timeout) -> None:
        del self._calls[deadline]
        if not deadline.expired():  # an expired one ends already
            deadline.reschedule(asyncio.get_running_loop().time())
