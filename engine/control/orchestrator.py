"""Follow one request through the stages: the main loop of the engine.

A request is one task tree: a hop for every worker that it passes, all of them running at once, joined by bounded
streams. Slots are taken strictly in stage order, so that no two requests wait for each other; neighbouring stages on
one worker are one hop, and what passes between them never leaves it. Knows no model and no process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from engine.control.pool import StagePool
from engine.control.replica import Outlet, StageReplica
from engine.control.timeline import Ledger, Timeline
from engine.core import Chunk, Request
from engine.errors import EngineError, RequestError, StageUnavailable, Stalled, plain
from engine.stream import Stream, Taken, closing
from engine.wire import PlayoutState

log = logging.getLogger(__name__)

Pool = StagePool[StageReplica]


class Chunks:
    """What the client of a request sees and hears: an async iterator that ends, or raises one EngineError."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.timeline = Timeline(time.monotonic())
        self.stream = Stream()  # bounded by the credit of the runs that fill it, so text never waits behind sound
        self.hosts: set[StageReplica] = set()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        return await anext(self.stream)

    @property
    def ledger(self) -> Ledger | None:
        """Where the time to first audio went; None before there is any."""
        return self.timeline.ledger()

    def held(self) -> None:
        """Report that nobody hears the answer for now: the user may go on. All that is awaited comes before it."""
        self._report("held")

    def due(self) -> None:
        """Report that an answer which was held is awaited."""
        self._report("due")

    def played(self) -> None:
        """Report that the listener's first sample plays now; until then it counts as playing once it is made."""
        self._report("playing")

    def _report(self, state: PlayoutState) -> None:
        for host in {replica.host for replica in self.hosts}:
            host.report(self.request.id, state)


class Orchestrator:
    """Follows each request through all stages at once."""

    def __init__(self, pools: Sequence[Pool], stall_s: float) -> None:
        self.pools, self._stall_s = pools, stall_s

    @asynccontextmanager
    async def open(self, request: Request, inputs: AsyncIterator[Chunk] | None) -> AsyncGenerator[Chunks]:
        """The answer to a request, while the block lasts: leaving it is the abort. Raises one plain EngineError."""
        chunks = Chunks(request)
        follow = asyncio.create_task(self._follow(chunks, inputs), name=f"request:{request.id}")
        try:
            yield chunks
        finally:
            follow.cancel()
            await _ended(follow)
            chunks.stream.close()

    async def _follow(self, chunks: Chunks, inputs: AsyncIterator[Chunk] | None) -> None:
        """The request's root: whatever happens below it ends the client's stream, once."""
        pools = [pool for pool in self.pools if pool.info.serves(chunks.request)]
        try:
            async with asyncio.timeout(self._stall_s) as stall, asyncio.TaskGroup() as hops:
                if not pools:
                    raise StageUnavailable("no stage is up that serves this request")
                request = _Hops(chunks, pools, hops, stall, self._stall_s)
                request.begin(inputs)
        except TimeoutError:
            what = "the answer was not read" if chunks.stream else "no progress"
            chunks.stream.fail(Stalled(f"{what} for {self._stall_s:g} s"))
        except BaseExceptionGroup as group:
            chunks.stream.fail(_told(plain(group)))
        finally:
            chunks.stream.close()


class _Hops:
    """One request's hops: what they share is the client's stream, the timeline and the deadline."""

    def __init__(
        self, chunks: Chunks, pools: Sequence[Pool], group: asyncio.TaskGroup, stall: asyncio.Timeout, stall_s: float
    ) -> None:
        self._chunks, self._pools, self._group = chunks, pools, group
        self._stall, self._stall_s = stall, stall_s

    def begin(self, inputs: AsyncIterator[Chunk] | None) -> None:
        """Start the first hop, and what feeds it; whoever feeds it ends with it."""
        turn = Stream()
        hop = self._start(0, turn, None)
        if inputs is None:
            turn.close()
        else:
            listening = self._group.create_task(self._listen(inputs, turn), name=f"{self._chunks.request.id}:inputs")
            # A second cancel would cut off how the caller's iterator ends.
            hop.add_done_callback(lambda _: listening.cancelling() or listening.cancel())

    def _start(self, first: int, inputs: Stream, worker: str | None) -> asyncio.Task[None]:
        """Start the hop that begins with the ``first``-th pool."""
        name = f"{self._chunks.request.id}:{self._pools[first].info.name}"
        return self._group.create_task(self._hop(first, inputs, worker), name=name)

    async def _hop(self, first: int, inputs: Stream, worker: str | None) -> None:
        """Lease a replica, and the same worker's next stages as far as they have room; run them; start what follows.

        Its inputs end with it, so that a hop which ends early holds up nobody upstream.
        """
        async with closing(inputs), AsyncExitStack() as leases:
            replica = await leases.enter_async_context(self._pools[first].lease(worker, self._chunks.request.session))
            self._chunks.hosts.add(replica)
            end = first + 1
            while end < len(self._pools) and self._pools[end].has_room_on(replica.worker):
                await leases.enter_async_context(self._pools[end].lease(replica.worker))
                end += 1
            self._chunks.timeline.mark("open", time.monotonic())
            onward = Stream()
            if end < len(self._pools):
                self._start(end, onward, replica.worker)
            else:
                onward.close()  # nobody reads it: what the last stage would feed is dropped
            stages = tuple(pool.info.name for pool in self._pools[first:end])
            try:
                await replica.host.run(self._chunks.request, stages, inputs, self._outlet(onward))
            finally:
                onward.close()

    def _outlet(self, onward: Stream) -> Outlet:
        def out(chunk: Chunk, client: bool, further: bool, taken: Taken) -> None:
            self._progress()
            if chunk.kind == "mark":
                for name, at_s in chunk.data.items():
                    self._chunks.timeline.mark(name, at_s)
                taken()
            elif client:
                if chunk.kind == "audio":
                    self._chunks.timeline.mark("audio", time.monotonic())
                self._chunks.stream.put(chunk, taken)
            if further:
                onward.put(chunk, taken)

        return out

    async def _listen(self, inputs: AsyncIterator[Chunk], turn: Stream) -> None:
        """The user's turn as it arrives; its end is the commit, from which the answer is awaited."""
        try:
            async with closing(inputs):
                async for chunk in inputs:
                    self._progress()
                    await turn.send(chunk)
        except EngineError:
            raise
        except Exception as error:
            raise RequestError(f"the request's input broke: {error!r}") from error
        self._chunks.timeline.commit_s = time.monotonic()
        turn.close()

    def _progress(self) -> None:
        if not self._stall.expired():
            self._stall.reschedule(asyncio.get_running_loop().time() + self._stall_s)


def _told(error: BaseException) -> EngineError:
    """What the caller is told; a mistake of our own is logged, too."""
    if isinstance(error, EngineError):
        return error
    log.error("a request failed", exc_info=error)
    return EngineError(f"the engine made a mistake: {error!r}")


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended, however often that is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled
