"""The hops of one request. A hop is its run through neighbouring stages on one worker; it moves if that worker is lost.

A hop stores its input and counts its output, so that it can begin again on another worker. RequestRecovery decides
when. The client and the next hop notice only a pause.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from msgspec import structs

from engine.chunk import Chunk, Transcript, Usage, VideoFrame, kinds, texts
from engine.control.chunks import Chunks
from engine.control.hop import Hop, Pool
from engine.control.recovery import RequestRecovery
from engine.control.replica import Outlet, RemoteWorker, StageReplica
from engine.control.stall_deadline import StallDeadline
from engine.core import PICTURES, ImagePart, Message, Request
from engine.delivered import count
from engine.errors import BatchLost, EngineError, ReplicaLost, RequestError, StageUnavailable
from engine.ipc import messages as wire
from engine.pipeline import Route
from engine.stream import ReplayBuffer, Stream, Taken, closing

log = logging.getLogger(__name__)

BYTES_REPLAYED = 64 << 20  # input that a hop stores: half an hour of speech, or 4000 hidden rows in float32
NOT_REPLAYED = -1  # a conversation with a duplex stage lasts too long to store, and cannot begin again
RESUME_S = 5.0  # seconds that a resume waits for a slot: it already holds slots of later stages


class Hops:
    """The hops of one request. They share the client's stream, the timeline, the deadline, and the checkpoints."""

    def __init__(
        self,
        chunks: Chunks,
        pools: Sequence[Pool],
        group: asyncio.TaskGroup,
        deadline: StallDeadline,
        route: Route,
    ) -> None:
        self._chunks = chunks
        self._pools = pools
        self._group = group
        self._deadline = deadline
        self._route = route
        self._recovery = RequestRecovery(chunks, pools)
        self._running: dict[Hop, asyncio.Task[None]] = {}
        self._committed = asyncio.Event()
        self._frames: deque[VideoFrame] = deque(maxlen=PICTURES)  # for the stages that start after the user's turn

    def begin(self, inputs: AsyncIterator[Chunk] | None) -> None:
        """Start the first hop and the task that feeds it; the task ends with the hop."""
        turn, nobody = Stream(), Stream()
        nobody.close()  # chunks that the last stage would feed are dropped
        if inputs is None or self._route.say:
            self._committed.set()
        replayed = BYTES_REPLAYED if self._pools[0].info.facets.duplex is None else NOT_REPLAYED
        hop = self._start(Hop(0, len(self._pools), ReplayBuffer(turn, replayed), nobody))
        if self._route.say:
            self._group.create_task(self._say(turn), name=f"{self._chunks.request.id}:say")
        elif inputs is None:
            turn.close()
        else:
            for pool in self._behind_ears:
                if pool.info.prepares:
                    self._group.create_task(self._prepare(pool), name=f"{self._chunks.request.id}:prepare")
            listening = self._group.create_task(self._listen(inputs, turn), name=f"{self._chunks.request.id}:inputs")
            # A second cancel would cut off how the caller's iterator ends.
            hop.add_done_callback(lambda _: listening.cancelling() or listening.cancel())

    @property
    def _behind_ears(self) -> Sequence[Pool]:
        """Return the stages that start when the user's turn has ended."""
        return self._pools[self._route.ears :] if self._route.ears else ()

    async def _listen(self, inputs: AsyncIterator[Chunk], turn: Stream) -> None:
        """Pass the user's turn on as it arrives. Its end is the commit: from then on the answer is awaited."""
        watches = bool(self._pools[0].info.takes & kinds(VideoFrame))
        try:
            async with closing(inputs):
                async for chunk in inputs:
                    self._deadline.progress()
                    if isinstance(chunk, VideoFrame) and not watches:
                        self._look(chunk)
                    else:
                        await turn.send(chunk)
        except EngineError:
            raise
        except Exception as error:
            log.error("%s: reading the request's input failed", self._chunks.request.id, exc_info=error)
            raise RequestError("Reading the request's input failed. See the server's log.") from error
        self._chunks.timeline.commit_s = time.monotonic()
        self._committed.set()
        turn.close()

    async def _prepare(self, pool: Pool) -> None:
        """Let a stage warm up the known part of the prompt while the user speaks; undo it if the turn is cancelled."""
        replica = pool.likely(self._chunks.request.session)
        if replica is None:
            return
        drop = replica.host.prepare(wire.Prepare("", pool.info.name, self._chunks.request))
        try:
            await self._committed.wait()
        except asyncio.CancelledError:
            drop()
            raise

    def _look(self, frame: VideoFrame) -> None:
        """Store a frame for the stages after the speech recogniser, which start at the commit.

        Also let those stages that use the camera prepare for it now.
        """
        self._frames.append(frame)
        request = self._chunks.request
        for pool in self._behind_ears:
            looks = pool.info.prepares and pool.info.facets.camera is not None
            if looks and (replica := pool.likely(request.session)) is not None:
                replica.host.prepare(wire.Prepare("", pool.info.name, _showing(request, (), [frame])))

    async def _say(self, turn: Stream) -> None:
        """Send a text that is spoken verbatim to the client and to the voice, word by word."""
        words = list(texts(re.findall(r"\s*\S+\s*", self._route.say)))
        for text in words:
            self._chunks.put(text)
            await turn.send(text)
        self._chunks.put(Usage(output_tokens=len(words)))
        turn.close()

    def _start(self, hop: Hop) -> asyncio.Task[None]:
        name = f"{self._chunks.request.id}:{self._pools[hop.first].info.name}"
        task = self._running[hop] = self._group.create_task(self._follow(hop), name=name)
        task.add_done_callback(lambda _: self._running.pop(hop, None))
        return task

    async def _follow(self, hop: Hop) -> None:
        """Run a hop to its end, on another replica if one is lost.

        Its input stream ends with it, so that a hop that ends early does not block earlier stages. If a voice was cut
        off, the thinker is stopped too: the rest of its answer could not be heard.
        """
        lost: ReplicaLost | None = None
        host: RemoteWorker | None = None
        try:
            if hop.late:
                await self._committed.wait()
            while True:
                try:
                    async with self._leased(hop) as replica:
                        host = replica.host
                        await self._run(hop, replica)
                    if self._chunks.timeline.cut and not hop.inputs.source.ended:
                        self._stop_answers_before(hop)
                    return
                except ReplicaLost as error:
                    await self._recovery.lost(hop, host, error)
                    lost = error
                    log.warning("%s: %s; it continues on another replica", self._chunks.request.id, error)
        except StageUnavailable as error:
            if lost is not None:
                raise ReplicaLost(f"{lost}, and {error}") from error
            raise
        finally:
            hop.inputs.source.drop()
            hop.onward.close()

    def _stop_answers_before(self, hop: Hop) -> None:
        for other, task in self._running.items():
            if other.first < hop.first and any(pool.info.answers for pool in other.pools(self._pools)):
                task.cancel()

    @asynccontextmanager
    async def _leased(self, hop: Hop) -> AsyncGenerator[StageReplica]:
        """Lease a replica of the first stage, and the same worker's next stages as far as they have free slots.

        If the new worker hosts fewer stages than the lost one, another hop takes the rest and ``hop.end`` is reduced.
        Slots are leased in stage order. A resume cannot keep to that order, so it only waits for a limited time.
        """
        async with AsyncExitStack() as leases:
            request = self._chunks.request
            slots = [pool.info.slots_of(request) for pool in self._pools]
            first, owner = self._pools[hop.first], request.owner
            lease = first.lease(hop.near, request.session, slots[hop.first], self._preemptible, owner=owner)
            try:
                with self._deadline.lifted():
                    async with asyncio.timeout(RESUME_S + first.empty_s if hop.again else None):
                        replica = await leases.enter_async_context(lease)
            except TimeoutError:
                raise StageUnavailable(
                    f"a replica of {first.info.name} was lost, and no other had a free slot in time; try again"
                ) from None
            end, ears = hop.first + 1, self._route.ears
            while end < hop.end and end != ears and self._pools[end].has_room_on(replica.worker, slots[end]):
                pool, preemptible = self._pools[end], self._preemptible
                further = pool.lease(replica.worker, slots=slots[end], preemptible=preemptible, owner=owner)
                await leases.enter_async_context(further)
                end += 1
            self._chunks.hosts.add(replica)
            leases.callback(self._chunks.hosts.discard, replica)
            self._chunks.timeline.mark("open", time.monotonic())
            if end < hop.end:
                self._split(hop, end, replica.worker)
            yield replica

    def _preemptible(self) -> bool:
        return self._chunks.preemptible

    def _split(self, hop: Hop, end: int, near: str) -> None:
        """Give the stages from ``end`` on their own hop."""
        between = Stream()
        late = end == self._route.ears
        self._start(replace(hop, first=end, inputs=ReplayBuffer(between, BYTES_REPLAYED), near=near, late=late))
        hop.end = end
        hop.onward = between
        hop.given = {}

    async def _run(self, hop: Hop, replica: StageReplica) -> None:
        while True:
            try:
                return await self._once(hop, replica)
            except BatchLost as error:
                self._recovery.batch_lost(hop, error)

    async def _once(self, hop: Hop, replica: StageReplica) -> None:
        stages, request = tuple(pool.info.name for pool in hop.pools(self._pools)), self._chunks.request
        if hop.late and self._frames:
            request = _showing(request, request.messages, self._frames)
        opening = wire.Open("", request, stages, wire.CREDIT, self._chunks.state, self._recovery.resume(hop))

        def give(chunk: Chunk, client: bool, further: bool, taken: Taken) -> None:
            self._deadline.progress()
            if client:
                self._chunks.put(chunk, taken)
            if further and hop.end == self._route.ears and isinstance(chunk, Transcript) and not chunk.final:
                taken()  # not read before the commit, and outdated by then: it would only use up credit
            elif further:
                count(hop.given, chunk)
                hop.onward.put(chunk, taken)

        await replica.host.run(
            opening, hop.inputs, Outlet(give, self._recovery.store, self._chunks.mark, self._deadline.progress)
        )


def _showing(request: Request, messages: Sequence[Message], frames: Iterable[VideoFrame]) -> Request:
    """Return the request with these messages, followed by a user message with the frames."""
    shown = Message("user", tuple(ImagePart(frame.pixels) for frame in frames))
    return structs.replace(request, messages=(*messages, shown))
