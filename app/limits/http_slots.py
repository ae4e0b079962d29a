"""The fraction of each stage's slots that answers over HTTP may use. The rest stays free for sessions.

HTTP answers run as fast as the engine can, one after the other, while a session needs a slot the moment its user stops
speaking. So HTTP requests wait in a queue, and sessions never wait for them. Requests that share a stage are served in
the order of their arrival; requests to another model do not wait for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Slots = Callable[[], Mapping[str, int]]
"""A function that returns, for each stage that a request passes, how many requests like it the stage has slots for
now."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A request in the queue, and the stages that it passes."""

    stages: frozenset[str]
    turn: asyncio.Event = field(default_factory=asyncio.Event)


class HttpSlotLimiter:
    """``wait_s`` bounds the wait; ``share`` is the fraction of each stage's slots, at least one slot."""

    def __init__(self, wait_s: float, share: float) -> None:
        self._wait_s = wait_s
        self._share = share
        self._held = Counter[str]()
        self._line: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._line)

    @asynccontextmanager
    async def hold(self, slots: Slots, patient: bool = False) -> AsyncGenerator[None]:
        """Hold a slot at every stage that ``slots`` names, while the block lasts.

        Raises TimeoutError unless the request is ``patient``.
        """
        stages = await self._turn(slots, None if patient else self._wait_s)
        self._held.update(stages)
        self._call()  # the next request may also find room
        try:
            yield
        finally:
            self._held.subtract(stages)
            self._call()

    async def _turn(self, slots: Slots, wait_s: float | None) -> tuple[str, ...]:
        """Wait until no earlier request shares a stage and each stage has room. Returns the stages."""
        waiter = _Waiter(frozenset(slots()))
        self._line.append(waiter)
        try:
            async with asyncio.timeout(wait_s):
                while not (waiter in self._first() and self._room(found := slots())):
                    waiter.turn.clear()
                    await waiter.turn.wait()
            return tuple(found)
        finally:
            self._line.remove(waiter)
            self._call()  # if this request gave up, the next one is first

    def _room(self, slots: Mapping[str, int]) -> bool:
        return all(self._held[stage] < max(1, int(self._share * number)) for stage, number in slots.items())

    def _first(self) -> Iterator[_Waiter]:
        """Yield the requests in the queue that share no stage with an earlier one."""
        taken = set[str]()
        for waiter in self._line:
            if taken.isdisjoint(waiter.stages):
                yield waiter
            taken |= waiter.stages

    def _call(self) -> None:
        """Wake the requests that are first at their stages, which then check for room."""
        for waiter in self._first():
            waiter.turn.set()
