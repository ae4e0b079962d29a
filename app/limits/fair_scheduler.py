"""The fair scheduler of the event loop's time: a small free share for each client, and slices for all further work.

Only one client with much work runs at a time, for at most SLICE_S, and half of the loop's time stays free for all
others. Scheduling order: (1) clients within their rate limit, (2) clients within their share of the loop's time,
(3) first come, first served, where new connections count as NEW_S later. So a user who speaks waits neither for
clients that flood nor for a crowd of new ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from app.client_address import subscriber
from app.limits.rate_limiter import RateLimiter, TokenBucket

T = TypeVar("T")

SLICE_S = 0.002
"""Length of one slice in seconds."""

EVERY_S = 2 * SLICE_S
"""Seconds from the start of a fully used slice to the next. After a shorter one, twice the time that it used."""

LEAST_S = SLICE_S / 10
"""Minimum seconds from one slice to the next."""

NEW_S = 1.0
"""Seconds that are added to a new client's arrival time, so that earlier clients go first."""

FREE, AT_ONCE_S = 0.025, 0.0005
"""The fraction of the loop's time that one client has without waiting for a slice, and its burst in seconds.

Speech in real time uses most of the fraction. The burst is small, because fifty clients may begin to flood at once.
"""

TOGETHER, TOGETHER_AT_ONCE_S = 0.25, 0.02
"""The same for all connections of one address together: enough for a dozen speakers. Without it, fifty flooding
connections would use up the whole loop with their free fractions."""


AHEAD_S = 1.0
"""Seconds by which a client may exceed its message rate and still use the free fraction. Beyond it, all its work waits
for slices."""

JUST_S = 0.02
"""Seconds by which a client may exceed its rate and still count as within it. Every message puts its sender slightly
ahead; a flooding client gets three times as far ahead with each slice."""

LONG_BYTES = 256 * 1024
"""Messages of at least this many bytes are decoded in a thread: decoding takes milliseconds, the hand-over to the
thread a tenth of one.
"""


class FairScheduler:
    """Grants the slices of one server. ``now`` returns monotonic seconds.

    ``worked`` returns the CPU time of the loop's thread in seconds. Work is measured by it and not by the clock: on a
    busy machine, 50 µs of work may last 50 ms.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        self.now = now
        self.worked = worked
        self._line: list[tuple[float, bool, float, int, Callable[[], None]]] = []  # a heap; each client appears once
        self._order = count()
        self._aside = asyncio.Semaphore(1)
        self._granted_s = float("-inf")
        self._worked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._together = WeakValueDictionary[str, TokenBucket]()

    def together(self, address: str) -> TokenBucket:
        """Return the bucket of free loop time that the connections of an address share."""
        name = subscriber(address)
        if (bucket := self._together.get(name)) is None:
            bucket = self._together[name] = TokenBucket(TOGETHER, TOGETHER_AT_ONCE_S)
        return bucket

    async def read(self, work: Callable[[], T], size: int) -> T:
        """Run work on ``size`` bytes of a client: here, or ``aside`` if there are many."""
        return await self.in_thread(work) if size > LONG_BYTES else work()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run long work in a thread, one piece at a time for all clients.

        Cancelling does not stop the work; the next piece waits until it is done.
        """
        await self._aside.acquire()
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(self._done)
        return await asyncio.shield(done)

    def _done(self, work: asyncio.Future[T]) -> None:
        self._aside.release()
        if not work.cancelled():
            work.exception()  # mark it as retrieved: the waiter may have been cancelled

    def join(self, go: Callable[[], None], ahead_s: float, owes: bool, from_s: float) -> None:
        """Call ``go`` once, when the client's turn comes.

        Clients are ordered by ``ahead_s`` (seconds beyond their rate), then by ``owes`` (whether they exceeded their
        share of the loop's time), then by ``from_s`` (arrival).
        """
        heappush(self._line, (ahead_s, owes, from_s, next(self._order), go))
        if self._timer is None:
            self._wait()

    def work(self, work_s: float) -> None:
        """Record CPU seconds that the current slice used. The next slice starts later accordingly."""
        self._worked_s += work_s

    @property
    def _next_s(self) -> float:
        """Return when the next slice may begin."""
        return self._granted_s + min(EVERY_S, max(LEAST_S, 2 * self._worked_s))

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self._next_s - self.now()), self._grant)

    def _grant(self) -> None:
        self._timer = None
        try:
            if self.now() >= self._next_s:  # otherwise more was worked meanwhile
                self._granted_s = self.now()
                self._worked_s = 0.0
                *_, go = heappop(self._line)
                go()
        finally:  # also if one client's work fails
            if self._line and self._timer is None:
                self._wait()


class LoopTimeBudget:
    """One connection's share of the event loop's time, for all work from the parser to the session.

    Work between ``begin`` and ``count`` is charged to it. ``address`` may be empty as long as it is unknown. ``pace``
    is the client's rate limiter: clients beyond their rate go after all others, since CPU time alone cannot tell a
    flooding client from a user who speaks on a slow machine.
    """

    def __init__(self, scheduler: FairScheduler, address: str = "", pace: RateLimiter | None = None) -> None:
        self.scheduler = scheduler
        self.pace = pace
        self._mine = TokenBucket(FREE, AT_ONCE_S)
        self._ours = TokenBucket(1.0, 1.0)
        self.belong(address)
        self._come_s = scheduler.now()
        self._begun_s: float | None = None
        self._slice_s = 0.0  # the rest of the granted slice
        self._waiting = list[Callable[[], None]]()  # at most one for each task of the connection

    def belong(self, address: str) -> None:
        """Count this connection towards an address. An empty address is unknown and changes nothing."""
        if address:
            self._ours = self.scheduler.together(address)

    def sent(self, size: int) -> None:
        """Charge bytes that the server sends to the client. Too many make it read the client's messages more slowly."""
        if self.pace is not None:
            self.pace.sent.take(size, self.scheduler.now())

    def begin(self) -> None:
        """Start to measure work for the client."""
        self._begun_s = self.scheduler.worked()

    def count(self) -> None:
        """Stop measuring, and charge the work. May be called twice."""
        if self._begun_s is None:
            return
        work_s = self.scheduler.worked() - self._begun_s
        self._begun_s = None
        now_s = self.scheduler.now()
        self._mine.take(work_s, now_s)
        if self._slice_s > 0:
            self.scheduler.work(work_s)
        self._ours.take(work_s, now_s)
        self._slice_s -= work_s

    @property
    def used_up(self) -> bool:
        """Whether this connection's next piece of work must wait until the scheduler grants it a time slice.

        True without an unspent slice, once its free share of the event loop's time (or its address's) is spent, or its
        client is more than AHEAD_S beyond the message rate.
        """
        if self._slice_s > 0:
            return False
        now_s = self.scheduler.now()
        if self._mine.wait_s(now_s) > 0 or self._ours.wait_s(now_s) > 0:
            return True
        return self.pace is not None and self.pace.ahead_s(now_s) > AHEAD_S

    def join(self, go: Callable[[], None]) -> None:
        """Call ``go`` once, when this client is granted a slice. The client queues only once."""
        self._waiting.append(go)
        if len(self._waiting) == 1:
            now_s = self.scheduler.now()
            ahead_s = self.pace.ahead_s(now_s) - JUST_S if self.pace is not None else 0.0
            owes = self._mine.wait_s(now_s) > JUST_S
            self.scheduler.join(self._granted, max(0.0, ahead_s), owes, max(now_s, self._come_s + NEW_S))

    def _granted(self) -> None:
        self._slice_s = SLICE_S
        waiting = self._waiting
        self._waiting = []
        for go in waiting:
            go()

    @property
    def now(self) -> Callable[[], float]:
        """The clock of the scheduler."""
        return self.scheduler.now

    async def turn(self) -> None:
        """Wait for the next time slice if this client has used up its share of the event loop.

        Do not call it between ``begin`` and ``count``, which measure the client's work.
        """
        if self.used_up:
            granted = asyncio.Event()
            self.join(granted.set)
            await granted.wait()

    async def pause(self) -> None:
        """Wait for a slice if necessary, in the middle of measured work."""
        self.count()
        await self.turn()
        self.begin()

    async def read(self, work: Callable[[], T], size: int) -> T:
        """Run work on a message of ``size`` bytes, here or in a thread, and then wait for a slice if necessary."""
        if size > LONG_BYTES:
            done = await metered(self.scheduler.in_thread(work), self)
        else:
            self.begin()
            try:
                done = work()
            finally:
                self.count()
        await self.turn()
        return done


class metered(Generic[T]):
    """Awaits a coroutine, and charges each of its steps to a client. Returns what the coroutine returns."""

    def __init__(self, work: Coroutine[Any, Any, T], loop_time: LoopTimeBudget) -> None:
        self._work = work
        self._loop_time = loop_time

    def __await__(self) -> Generator[Any, Any, T]:
        step = partial(self._work.send, None)
        while True:
            self._loop_time.begin()
            try:
                awaited = step()
            except StopIteration as done:
                return done.value
            finally:
                self._loop_time.count()
            try:
                yield awaited
                step = partial(self._work.send, None)
            except BaseException as error:  # noqa: BLE001 - it is the work's own to catch
                step = partial(self._work.throw, error)
