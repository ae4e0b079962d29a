"""One request's run through the stages that a worker hosts: its seats, the streams between them, its credit.

Knows nothing of the loop's schedule and nothing of a socket: what leaves goes through ``send``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from engine import wire
from engine.config import ChunkSpec
from engine.core import SPEAKER_RATE_HZ, Chunk, Request, seconds
from engine.errors import EngineError, plain
from engine.stream import Stream
from engine.tally import Tally, fresh
from engine.worker.scheduler import Entry, Listener, Scheduler
from engine.worker.stage import Seat, Stage

BETWEEN_STAGES = 64  # chunks between two stages: some seconds of codec frames, a few sentences of text
Send = Callable[[wire.Message], None]


@dataclass(slots=True)
class ListenerPace:
    """The chunk policy of one answer: a ramp, cut short when its listener would run dry."""

    chunks: ChunkSpec
    listener: Listener
    scheduler: Scheduler
    frame_s: float
    clock: Callable[[], float] = time.monotonic

    def size(self, count: int) -> int:
        """What a lost replica had given is made again in big chunks; the ramp begins with what is new."""
        again = round(self.listener.again_s / self.frame_s)
        whole, rest = divmod(again, self.chunks.steady)
        if count < whole:
            return self.chunks.steady
        if count == whole and rest:
            return rest
        return self.chunks.size(count - whole - bool(rest))

    def hurry(self) -> bool:
        """Whether waiting for one more frame, and decoding it, would take longer than the sound lasts."""
        if self.listener.started_s is None or self.listener.made_s < self.listener.again_s:
            return False
        return self.listener.slack_s(self.clock()) < 2 * self.scheduler.round_s + self.frame_s / 4


@dataclass(slots=True, eq=False)
class Hosted:
    """A stage as a run sees it: its seat, where its chunks go, and what has been noted of it."""

    entry: Entry
    stage: Stage
    outputs: Stream | None  # None: the last of the run, its chunks leave the worker
    eaten: asyncio.Event = field(default_factory=asyncio.Event)
    marks: dict[str, float] = field(default_factory=dict[str, float])


class Run:
    """A request in a worker. ``work`` is its task: when it ends, in whatever way, nothing of the run is left."""

    def __init__(
        self, id: str, request: Request, send: Send, credit: int, listener: Listener, wake: Callable[[], None]
    ) -> None:
        self.id, self.request = id, request
        self.listener = listener
        self.hosted: list[Hosted] = []
        self.inputs = Stream(depth=BETWEEN_STAGES)
        self._send, self._credit, self._wake = send, credit, wake
        self._given_client: Tally = {}
        self._given_onward: Tally = {}
        self._taken = 0
        self._over = asyncio.Event()
        self._error: EngineError | None = None

    def resume(self, from_: wire.Resume, now_s: float) -> None:
        """Go on where a lost replica was: what that had given is made again, but does not leave."""
        self._given_client, self._given_onward = dict(from_.client), dict(from_.onward)
        self.listener.resume(from_.client.get("audio", 0) / SPEAKER_RATE_HZ, from_.playing_s, now_s)

    def host(self, stage: Stage, seat: Seat, last: bool) -> None:
        """Add the next stage of the line."""
        outputs = None if last else Stream(depth=BETWEEN_STAGES)
        entry = Entry(seat, stage.info.name, stage.info.order, self.listener)
        self.hosted.append(Hosted(entry, stage, outputs))

    async def work(self, rows_ahead: int) -> None:
        """Run the bridges until every seat is done or one fails, and say so."""
        try:
            async with asyncio.TaskGroup() as bridges:
                tasks = [
                    bridges.create_task(self._bridge(h, s, rows_ahead), name=f"{self.id}:{h.entry.stage}")
                    for h, s in zip(self.hosted, self._sources(), strict=True)
                ]
                await self._over.wait()
                for task in tasks:
                    task.cancel()
            if self._error is not None:
                raise self._error
            self._send(wire.End(self.id))
        except BaseExceptionGroup as group:
            raise plain(group) from None

    def _sources(self) -> Sequence[Stream]:
        return [self.inputs, *(hosted.outputs for hosted in self.hosted if hosted.outputs is not None)]

    async def _bridge(self, hosted: Hosted, source: Stream, rows_ahead: int) -> None:
        seat = hosted.entry.seat
        async with aclosing(hosted.stage.bridge(seat, source)) as rows:
            async for row in rows:
                while len(seat.rows) >= rows_ahead:
                    hosted.eaten.clear()
                    await hosted.eaten.wait()
                seat.rows.append(row)
                self._wake()
        seat.ended = True
        self._wake()

    def ready(self, hosted: Hosted, now_s: float) -> bool:
        """Whether a seat can step: it has something to do, and room for what it emits."""
        if not hosted.entry.seat.ready or self._credit <= 0 or self._over.is_set():
            return False
        if hosted.outputs is not None and hosted.outputs.room <= 0 and not hosted.outputs.ended:
            return False
        return self.wait_s(hosted, now_s) <= 0

    def wait_s(self, hosted: Hosted, now_s: float) -> float:
        """How long a stage that makes sound is to wait for a listener who has enough ahead; 0 for the others."""
        lead_s = self.request.lead_s
        waits = self.listener.speculative or self.listener.started_s is not None
        if lead_s is None or hosted.stage.info.when != "speaks" or not waits:
            return 0.0
        return self.listener.slack_s(now_s) - lead_s

    def stepped(self, hosted: Hosted, chunks: Sequence[Chunk] | EngineError, began_s: float, ended_s: float) -> None:
        """Send what a step of a seat gave to where it belongs. Raises the error that it gave."""
        if isinstance(chunks, EngineError):
            raise chunks
        hosted.eaten.set()
        if chunks and "out" not in hosted.marks:
            hosted.marks |= {"step": began_s, "out": ended_s}
            self._mark(hosted)
        for chunk in chunks:
            self._pass_on(hosted, chunk, ended_s)
        if hosted.entry.seat.done:
            self._finish(hosted, ended_s)

    def _pass_on(self, hosted: Hosted, chunk: Chunk, now_s: float) -> None:
        info = hosted.stage.info
        if chunk.kind == "audio":
            self.listener.produce(seconds(chunk.data, SPEAKER_RATE_HZ), now_s)
        client = onward = None
        if chunk.kind in info.emits or (self.request.dump and chunk.kind == "codes"):
            client = fresh(self._given_client, chunk)
        if chunk.kind in info.feeds and hosted.outputs is not None:
            hosted.outputs.put(chunk, self._wake)
        elif chunk.kind in info.feeds:
            onward = fresh(self._given_onward, chunk)
        if client is not None:
            self._emit(client, True, onward is client)
        if onward is not None and onward is not client:
            self._emit(onward, False, True)

    def _finish(self, hosted: Hosted, now_s: float) -> None:
        hosted.marks["done"] = now_s
        self._mark(hosted)
        if hosted.outputs is not None:
            hosted.outputs.close()
        source = self._sources()[self.hosted.index(hosted)]
        source.drop()  # a stage that ended early blocks nobody upstream
        if all(other.entry.seat.done for other in self.hosted):
            self._over.set()

    def _mark(self, hosted: Hosted) -> None:
        name = hosted.stage.info.name
        self._emit(Chunk("mark", {f"{name}.{word}": at_s for word, at_s in hosted.marks.items()}), True, False)

    def _emit(self, chunk: Chunk, client: bool, onward: bool) -> None:
        self._credit -= 1
        self._send(wire.Emit(self.id, chunk, client, onward))

    def fail(self, error: EngineError) -> None:
        """End the run with an error; nothing more of it leaves but that."""
        self._error = self._error or error
        self.close()

    def close(self) -> None:
        """Step no more: the run is over, whatever its seats still have."""
        self._over.set()

    def feed(self, chunk: Chunk) -> None:
        """Take a chunk from the server; what comes after the first stage's end only gives its credit back."""
        self.inputs.put(chunk, self._took_input)

    def grant(self, n: int) -> None:
        self._credit += n
        self._wake()

    def commit(self, now_s: float) -> None:
        """The input has ended: from here the answer counts as awaited."""
        self.inputs.close()
        if not self.listener.committed:
            self.listener.committed, self.listener.arrived_s = True, now_s
        self._wake()

    def report(self, state: wire.PlayoutState, now_s: float) -> None:
        """What becomes of the sound: it is held, awaited, or heard from now on."""
        self.listener.speculative = state == "held"
        if state == "playing":
            self.listener.started_s = now_s
        self._wake()

    def _took_input(self) -> None:
        self._taken += 1
        if self._taken == wire.GRANT:
            self._taken = 0
            self._send(wire.Grant(self.id, wire.GRANT))
