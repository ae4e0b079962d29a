"""The event loop's time, shared between the clients: a little for each at once, more of it slice by slice in one line.

However many clients have much to be done, one of them works at a time, for SLICE_S at most, and half of the loop's time
is left for everybody else. Next is who keeps the pace, before those who do not; of these, who had no more than its
part, and then who came first, before those who have just connected: a user who speaks waits neither behind clients that
flood nor behind a crowd of newcomers. Knows no client, and not what the work is.
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

from app.addresses import subscriber
from app.pace import Bucket, Pace

T = TypeVar("T")

SLICE_S = 0.002
"""Seconds that a client may work before another one in the line does."""

EVERY_S = 2 * SLICE_S
"""Seconds from the beginning of one slice to that of the next, where it is used up; else twice as long as was worked in
it."""

LEAST_S = SLICE_S / 10
"""Seconds from one slice to the next where hardly anything was done in it."""

NEW_S = 1.0
"""Seconds by which a new client stands in line as if it had come later, behind those who were there."""

FREE, AT_ONCE_S = 0.025, 0.0005
"""The part of the loop's time that a client has without standing in line: speech at its own pace takes most of that.

At once it is little: fifty who begin to flood in the same moment must not hold up everybody else.
"""

TOGETHER, TOGETHER_AT_ONCE_S = 0.25, 0.02
"""The part that the connections of one address have so, all together: speech of a dozen. Fifty that flood, each with
what one may have, would leave nothing for anybody else; the others of that address then stand in line before them.
Sixty who come in the same moment hold everybody up for somewhat longer than what they have at once."""


AHEAD_S = 1.0
"""Seconds that a client may be ahead of its pace of messages and have a part of the loop's time freely. Beyond that it
stands in line for all that it does: the address's part is left to the others there."""

JUST_S = 0.02
"""Seconds by which a client may be ahead and still stands in line as one who is not: who has just said something is
ahead by that, and a crowd of newcomers would have its turn first. One who floods is ahead by three times as much with
each slice."""

LONG_BYTES = 256 * 1024
"""Bytes of a client's message from which on it is read off the event loop: that would be held up for milliseconds,
while to hand it to a thread and back takes a tenth of one."""


class Slices:
    """One server's slices. ``now`` is monotonic seconds.

    ``worked`` is the processor time that the loop's thread has had, in seconds. Work is counted by that: where other
    processes take the processors, a datagram's 50 µs may last 50 ms by the clock, and its sender would wait as those
    who flood do.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        self.now = now
        self.worked = worked
        self._line: list[tuple[float, bool, float, int, Callable[[], None]]] = []  # a heap; each client is in it once
        self._order = count()
        self._aside = asyncio.Semaphore(1)
        self._granted_s = float("-inf")
        self._worked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._together = WeakValueDictionary[str, Bucket]()

    def together(self, address: str) -> Bucket:
        """Return the time that the connections of an address have had without standing in line."""
        name = subscriber(address)
        if (bucket := self._together.get(name)) is None:
            bucket = self._together[name] = Bucket(TOGETHER, TOGETHER_AT_ONCE_S)
        return bucket

    async def read(self, work: Callable[[], T], size: int) -> T:
        """Do work that goes through so many bytes of a client's: here, or ``aside`` where they are many."""
        return await self.aside(work) if size > LONG_BYTES else work()

    async def aside(self, work: Callable[[], T]) -> T:
        """Do in a thread what takes long in one piece; one such work at a time, however many clients ask for some.

        A client that leaves meanwhile has its work done to the end, and the next one waits for that.
        """
        await self._aside.acquire()
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(self._done)
        return await asyncio.shield(done)

    def _done(self, work: asyncio.Future[T]) -> None:
        self._aside.release()
        if not work.cancelled():
            work.exception()  # the waiter may have left

    def join(self, go: Callable[[], None], ahead_s: float, owes: bool, from_s: float) -> None:
        """Call ``go`` once, when its turn has come.

        Its turn is before those who are further ahead of their pace; of the others before those who had more than
        their part of the loop's time, where this one does not; and before those who joined later.
        """
        heappush(self._line, (ahead_s, owes, from_s, next(self._order), go))
        if self._timer is None:
            self._wait()

    def work(self, work_s: float) -> None:
        """Count the time that was worked in a slice."""
        self._worked_s += work_s

    @property
    def _next_s(self) -> float:
        """Return when the next slice may begin."""
        return self._granted_s + min(EVERY_S, max(LEAST_S, 2 * self._worked_s))

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self._next_s - self.now()), self._grant)

    def _grant(self) -> None:
        self._timer = None
        if self.now() >= self._next_s:  # else more was worked meanwhile
            self._granted_s = self.now()
            self._worked_s = 0.0
            *_, go = heappop(self._line)
            go()
        if self._line and self._timer is None:
            self._wait()


class LoopTime:
    """One connection's part of it, at ``address`` where that is known: all that is done for it, from the parser to the
    session, so that a message stands in line once. Work is counted from ``begin`` to ``count``.

    ``pace`` is the client's. One that is ahead of it stands behind all others: fifty that flood leave each other less
    of the loop than a user takes who speaks, and only what they ask for tells them apart. The time that they had does
    not count beside that: on a slow machine whoever speaks has more than a part, and owes more with each second.
    """

    def __init__(self, slices: Slices, address: str = "", pace: Pace | None = None) -> None:
        self.slices = slices
        self._pace = pace
        self._mine = Bucket(FREE, AT_ONCE_S)
        self._ours = Bucket(1.0, 1.0)
        self.belong(address)
        self._come_s = slices.now()
        self._begun_s: float | None = None
        self._slice_s = 0.0  # the rest of the slice that was granted
        self._waiting = list[Callable[[], None]]()  # at most one for each task of the connection

    def belong(self, address: str) -> None:
        """The client is at this address: what its connections have is counted together. Of "" nothing is known."""
        if address:
            self._ours = self.slices.together(address)

    def begin(self) -> None:
        """Something is being done for the client from now on."""
        self._begun_s = self.slices.worked()

    def count(self) -> None:
        """It is done. May be called twice."""
        if self._begun_s is None:
            return
        work_s = self.slices.worked() - self._begun_s
        self._begun_s = None
        now_s = self.slices.now()
        self._mine.take(work_s, now_s)
        if self._slice_s > 0:
            self.slices.work(work_s)
        self._ours.take(work_s, now_s)
        self._slice_s -= work_s

    @property
    def used_up(self) -> bool:
        """Whether the next piece of work has to wait for a slice."""
        if self._slice_s > 0:
            return False
        now_s = self.slices.now()
        if self._mine.wait_s(now_s) > 0 or self._ours.wait_s(now_s) > 0:
            return True
        return self._pace is not None and self._pace.ahead_s(now_s) > AHEAD_S

    def join(self, go: Callable[[], None]) -> None:
        """Call ``go`` once, when there is a slice for this client, which stands in line once."""
        self._waiting.append(go)
        if len(self._waiting) == 1:
            now_s = self.slices.now()
            ahead_s = self._pace.ahead_s(now_s) - JUST_S if self._pace is not None else 0.0
            owes = self._mine.wait_s(now_s) > JUST_S
            self.slices.join(self._granted, max(0.0, ahead_s), owes, max(now_s, self._come_s + NEW_S))

    def _granted(self) -> None:
        self._slice_s = SLICE_S
        waiting = self._waiting
        self._waiting = []
        for go in waiting:
            go()

    @property
    def now(self) -> Callable[[], float]:
        """The clock by which it may wait."""
        return self.slices.now

    async def turn(self) -> None:
        """Let others have their turn if it is theirs, between what is counted."""
        if self.used_up:
            granted = asyncio.Event()
            self.join(granted.set)
            await granted.wait()

    async def pause(self) -> None:
        """Let others have their turn if it is theirs, in the middle of what is counted."""
        self.count()
        await self.turn()
        self.begin()

    async def read(self, work: Callable[[], T], size: int) -> T:
        """Do what goes through so many bytes of a message of the client's, here or in a thread; then ``turn``."""
        if size > LONG_BYTES:
            done = await Counted(self.slices.aside(work), self)
        else:
            self.begin()
            try:
                done = work()
            finally:
                self.count()
        await self.turn()
        return done


class Counted(Generic[T]):
    """A coroutine's work for a client, counted step by step: awaited in its place, it gives what that gives."""

    def __init__(self, work: Coroutine[Any, Any, T], loop_time: LoopTime) -> None:
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
