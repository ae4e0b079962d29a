"""The waits of a session: for threads, for its time slices and for timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Waits:
    """Waits whose end depends on the machine. A recording stores when each ended, since other input may have arrived
    meanwhile.
    """

    def part(self) -> Waits:
        """Return the waits of one task. A recording counts them separately, since tasks run in any order."""
        return self

    async def result(self, work: Awaitable[T]) -> T:
        """Wait for the result of other work."""
        return await work

    async def moment(self) -> None:
        """Pass a point that a task reaches sooner or later, depending on the other work of the event loop."""

    def ended(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the task of this part has ended."""
        then()

    async def alarm(self, event: asyncio.Event, delay_s: float | None) -> None:
        """Wait until ``event`` is set, or for ``delay_s`` seconds if that is shorter; then the event is set as well."""
        timer = None if delay_s is None else asyncio.get_running_loop().call_later(delay_s, event.set)
        try:
            await event.wait()
        finally:
            if timer is not None:
                timer.cancel()
