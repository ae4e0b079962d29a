"""One request's run through the stages that a worker hosts: its seats, the streams between them, its credit.

Knows nothing of the loop's schedule and nothing of a socket: what leaves goes through ``send``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from engine import wire
from engine.chunk import Audio, Checkpoint, Chunk, Codes, Speech
from engine.config import ChunkSpec
from engine.core import SPEAKER_RATE_HZ, Request, StageInfo, seconds
from engine.delivered import count, fresh
from engine.errors import EngineError, plain
from engine.stream import Stream
from engine.worker.group import BETWEEN_STAGES, Group, Hosted
from engine.worker.resume_state import ResumeState
from engine.worker.scheduler import Entry, Listener, Scheduler
from engine.worker.stage import Seat, Stage

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
        if not self.chunks.hurry or self.listener.started_s is None or self.listener.made_s < self.listener.again_s:
            return False
        return self.listener.slack_s(self.clock()) < 2 * self.scheduler.round_s + self.frame_s / 4


class Run:
    """A request in a worker. ``work`` is its task: when it ends, in whatever way, nothing of the run is left."""

    def __init__(
        self, id: str, request: Request, send: Send, credit: int, listener: Listener, wake: Callable[[], None]
    ) -> None:
        self.id, self.request = id, request
        self.listener = listener
        self.groups: list[Group] = []
        self.inputs = Stream(depth=BETWEEN_STAGES)
        self._send, self._credit, self._wake = send, credit, wake
        self._resume_state = ResumeState()
        self._apart = False
        self._taken = 0
        self._over = asyncio.Event()
        self._error: EngineError | None = None
        self._marks: dict[str, float] = {}

    def resume(self, from_: wire.Resume, now_s: float) -> None:
        """Go on where a lost replica was: what that had given does not leave again."""
        self._resume_state, self._apart = ResumeState(from_), from_.alone
        self.listener.resume(from_.client.get("audio", 0) / SPEAKER_RATE_HZ, from_.playing_s, now_s)

    def checkpoints(self, info: StageInfo) -> list[Chunk]:
        """What a stage checkpointed on a replica that was lost. A group makes all again: it has no checkpoints."""
        return self._resume_state.checkpoints(info) if self._alone(info) else []

    def _alone(self, info: StageInfo) -> bool:
        return info.seats(self.request) == 1

    def host(self, stage: Stage, seats: Sequence[Seat]) -> None:
        """Add the next stage of the line, with a seat for each role."""
        info = stage.info
        together = len(seats) if info.group == "guided" else 1
        group = Group(
            stage, [Entry(seat, info.name, info.order, self.listener, together, self._apart) for seat in seats]
        )
        if self.groups:
            self.groups[-1].following = group
        self.groups.append(group)
        group.hosted[0].made |= self._resume_state.begin(info, seats[0].kept)

    async def work(self) -> None:
        """Run the adapters until every seat is done or one fails, and say so."""
        try:
            self._pass_on_checkpoints()
            self._feed_recorded()
            self.inputs.set_reader(self._take_inputs)
            if any(one.entry.seat.ready for group in self.groups for one in group.hosted):
                self._wake()  # it needs no input to begin
            async with asyncio.TaskGroup() as adapters:
                tasks = [
                    adapters.create_task(self._adapt(hosted), name=f"{self.id}:{hosted.mark('adapt')}")
                    for group in self.groups
                    for hosted in group.hosted
                ]
                await self._over.wait()
                for task in tasks:
                    task.cancel()
            if self._error is not None:
                raise self._error
            self._send_marks()
            self._send(wire.End(self.id))
        except BaseExceptionGroup as group:
            raise plain(group) from None

    def _pass_on_checkpoints(self) -> None:
        self.listener.again_s -= self._resume_state.covered_s
        for group in self.groups:
            for chunk in group.hosted[0].entry.seat.kept:
                if chunk.kind in group.stage.info.checkpoints:
                    self._route(group, chunk)

    def _feed_recorded(self) -> None:
        """To ears a recording is speech like any other: it comes first."""
        if self.groups[0].stage.info.hears_only:
            for pcm in self.request.recorded:
                self.groups[0].feed(Speech(pcm), self._wake)

    def _take_inputs(self) -> None:
        """What came before there were seats, and what comes, goes to the first stage; its credit when that took it."""
        while (chunk := self.inputs.take()) is not None:
            self.groups[0].feed(chunk, self._took_input)
        if self.inputs.ended:
            self.groups[0].close()

    async def _adapt(self, hosted: Hosted) -> None:
        seat, rows_ahead = hosted.entry.seat, hosted.group.stage.info.rows_ahead
        async with aclosing(hosted.group.stage.adapt(seat, hosted.source)) as rows:
            async for row in rows:
                while len(seat.rows) >= rows_ahead:
                    hosted.consumed.clear()
                    await hosted.consumed.wait()
                seat.rows.append(row)
                self._wake()
        seat.ended = True
        self._wake()

    def ready(self, hosted: Hosted, now_s: float) -> bool:
        """Whether a seat can step: it has something to do, and room for what it emits."""
        if self._credit <= 0 or self._over.is_set():
            return False
        if not hosted.entry.seat.ready:
            return False
        if hosted.group.guided and not all(one.entry.seat.ready for one in hosted.group.hosted):
            return False
        following = hosted.group.following
        if following is not None and following.full:
            return False
        return self.wait_s(hosted, now_s) <= 0

    def wait_s(self, hosted: Hosted, now_s: float) -> float:
        """How long a stage that makes sound is to wait for a listener who has enough ahead; 0 for the others."""
        lead_s = self.request.lead_s
        waits = self.listener.speculative or self.listener.started_s is not None
        if lead_s is None or not hosted.group.stage.info.sounds or not waits:
            return 0.0
        return self.listener.slack_s(now_s) - lead_s

    def stepped(self, hosted: Hosted, chunks: Sequence[Chunk] | EngineError, began_s: float, ended_s: float) -> None:
        """Send what a step of a seat gave to where it belongs. Raises the error that it gave."""
        if isinstance(chunks, EngineError):
            raise chunks
        hosted.consumed.set()
        if chunks and "out" not in hosted.marks:
            hosted.marks |= {"step": began_s, "out": ended_s}
            self._mark(hosted)
        for chunk in chunks:
            self._give(hosted, chunk, ended_s)
        if hosted.entry.seat.done and "done" not in hosted.marks:
            self._finish(hosted, ended_s)

    def _give(self, hosted: Hosted, chunk: Chunk, now_s: float) -> None:
        """What a role gave: the main one's is the answer; of a joined group, the next stage gets all in the end."""
        info = hosted.group.stage.info
        if hosted.group.joined and chunk.kind in info.feeds:
            hosted.given.append(chunk)
        if not hosted.main:
            return
        if isinstance(chunk, Checkpoint):
            self._checkpoint(info, Checkpoint(chunk.state, info.name, dict(hosted.made)))
            return
        count(hosted.made, chunk)
        if isinstance(chunk, Audio):
            self.listener.produce(seconds(chunk.wave, SPEAKER_RATE_HZ), now_s)
        if (new := self._resume_state.new(info, chunk)) is not None:
            if chunk.kind in info.checkpoints:
                self._checkpoint(info, new)
            self._route(hosted.group, new)

    def _checkpoint(self, info: StageInfo, chunk: Chunk) -> None:
        if self._alone(info):
            self._resume_state.checkpoint(chunk)

    def _route(self, group: Group, chunk: Chunk) -> None:
        """To the client, to the next stage, or to both, as the stage declares it."""
        info = group.stage.info
        client = chunk.kind in info.emits or (self.request.dump and isinstance(chunk, Codes))
        self._pass_on(group, chunk, client, not group.joined and chunk.kind in info.feeds)

    def _pass_on(self, group: Group, chunk: Chunk, client: bool, further: bool) -> None:
        to_client = fresh(self._resume_state.client, chunk) if client else None
        onward = None
        following = group.following
        if further and following is not None:
            following.feed(chunk, self._wake)
        elif further:
            onward = fresh(self._resume_state.onward, chunk)
        if to_client is not None:
            self._emit(to_client, True, onward is to_client)
        if onward is not None and onward is not to_client:
            self._emit(onward, False, True)

    def _finish(self, hosted: Hosted, now_s: float) -> None:
        """A seat is done. A guided group is done when its main role is; what it followed blocks nobody upstream."""
        group = hosted.group
        hosted.marks["done"] = now_s
        self._mark(hosted)
        if group.joined:
            self._send_marks()  # at the deadline it must be known who has ended, and who has not
        hosted.source.drop()
        if group.guided and hosted.main:
            for companion in group.hosted[1:]:
                companion.entry.seat.done = True
                companion.source.drop()
        if not group.done:
            return
        if (bundle := group.bundle()) is not None:
            self._pass_on(group, bundle, client=False, further=True)
        if (following := group.following) is not None:
            following.close()
        if all(other.done for other in self.groups):
            self._over.set()

    def _mark(self, hosted: Hosted) -> None:
        """Note the moments of a seat: they go with what leaves next."""
        self._marks |= {hosted.mark(word): at_s for word, at_s in hosted.marks.items()}

    def _send_marks(self) -> None:
        if self._marks:
            marks, self._marks = self._marks, {}
            self._send(wire.Marks(self.id, marks))

    def _emit(self, chunk: Chunk, client: bool, onward: bool) -> None:
        self._credit -= 1
        marks, self._marks = self._marks, {}
        self._send(wire.Emit(self.id, chunk, client, onward, self._resume_state.take_checkpoints(), marks))

    def fail(self, error: EngineError) -> None:
        """End the run with an error; nothing more of it leaves but that."""
        self._error = self._error or error
        self.close()

    def close(self) -> None:
        """Step no more: the run is over, whatever its seats still have."""
        self._over.set()

    def feed(self, chunk: Chunk) -> None:
        """Take a chunk from the server; what comes after the first stage's end only gives its credit back."""
        self.inputs.put(chunk)

    def grant(self, n: int) -> None:
        self._credit += n
        self._wake()

    def commit(self, now_s: float) -> None:
        """The input has ended: from here the answer counts as awaited."""
        self.inputs.close()
        if not self.listener.committed:
            self.listener.committed, self.listener.arrived_s = True, now_s
        self._wake()

    def report(self, state: wire.PlayoutState, since_s: float) -> None:
        """What becomes of the sound: it is held, awaited, or heard, as if its first sample had played ``since_s``."""
        self.listener.speculative = state == "held"
        if state == "playing":
            self.listener.started_s = since_s
        self._wake()

    def _took_input(self) -> None:
        self._taken += 1
        if self._taken == wire.GRANT:
            self._taken = 0
            self._send(wire.Grant(self.id, wire.GRANT))
