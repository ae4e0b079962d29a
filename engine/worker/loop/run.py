"""One request's run through the stages of a worker: a StageRequest per stage, the streams between them, and the credit.

Messages leave through ``send``. RunRecovery handles resuming after a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from engine.aio.task_group import CycleFreeTaskGroup
from engine.chunk import Audio, Chunk, Codes, Speech, Text, Transcript, VoiceText, array_fault
from engine.core import SPEAKER_RATE_HZ, Pcm, Request, seconds
from engine.errors import EngineError, StageFailed, Stalled, plain
from engine.ipc import messages
from engine.stream import Stream
from engine.worker.frame_clock import DuplexFrame, FrameClock
from engine.worker.listener import Listener
from engine.worker.loop.recovery import RunRecovery
from engine.worker.loop.role_group import RoleGroup
from engine.worker.stage import Stage
from engine.worker.stage_request import BETWEEN_STAGES, StageRequest

Send = Callable[[messages.Message], None]

MOST_SILENT_STEPS = 10_000
"""Consecutive steps of a request without input or output after which its stage counts as stuck.

A prompt of a million tokens in pieces of 512 takes 2,000 steps; a diffusion stage takes a few hundred.
"""


class Run:
    """A request in a worker. When its task ``work`` has ended, nothing of the run is left."""

    def __init__(
        self,
        id: str,
        request: Request,
        send: Send,
        credit: int,
        listener: Listener,
        wake: Callable[[], None],
        recovery: RunRecovery | None = None,
    ) -> None:
        self.id = id
        self.request = request
        self.listener = listener
        self.recovery = recovery or RunRecovery()
        self.groups: list[RoleGroup] = []
        self.inputs = Stream(depth=BETWEEN_STAGES)
        self._send = send
        self._credit = credit
        self._wake = wake
        self._taken = 0
        self._over = asyncio.Event()
        self._error: EngineError | None = None
        self._language = ""
        self._marks: dict[str, float] = {}
        self._adapters: dict[StageRequest, asyncio.Task[None]] = {}

    @property
    def over(self) -> bool:
        """Whether no further output may leave."""
        return self._over.is_set()

    def host(self, stage: Stage, reqs: Sequence[StageRequest]) -> None:
        """Add the next stage, with the request in each of its roles."""
        group = RoleGroup(stage, reqs)
        if self.groups:
            self.groups[-1].following = group
        self.groups.append(group)
        self.recovery.begin(group.main)

    async def work(self) -> None:
        """Run the adapters until every request is done or one fails, then report that."""
        try:
            self._pass_on_checkpoints()
            self._feed_recorded()
            self.inputs.set_reader(self._take_inputs)
            if any(req.ready or req.clock is not None for group in self.groups for req in group.reqs):
                self._wake()  # a request that needs no input can start
            async with CycleFreeTaskGroup() as adapters:
                self._adapters = {
                    req: adapters.create_task(self._adapt(group, req), name=f"{self.id}:{req.mark('adapt')}")
                    for group in self.groups
                    for req in group.reqs
                }
                await self._over.wait()
                for task in self._adapters.values():
                    task.cancel()
            if self._error is not None:
                raise self._error
            self._send_marks()
            self._send(messages.End(self.id))
        except BaseExceptionGroup as group:
            raise plain(group) from None
        finally:
            self._adapters.clear()

    def _pass_on_checkpoints(self) -> None:
        self.listener.again_s -= self.recovery.covered_s
        for group in self.groups:
            for chunk in self.recovery.passed_on(group):
                self._route(group, chunk)

    def _feed_recorded(self) -> None:
        """Feed recordings first. For a speech recogniser they are ordinary speech."""
        if self.groups[0].stage.info.hears_only:
            for pcm in self.request.recorded:
                self.groups[0].feed(Speech(pcm), self._wake)

    def _take_inputs(self) -> None:
        """Feed the first stage. Inputs that arrived before it was ready come first. Each is credited once read."""
        while (chunk := self.inputs.take()) is not None:
            self.groups[0].feed(self._in_language(chunk), self._took_input)
        if self.inputs.ended:
            self.groups[0].close()

    async def _adapt(self, group: RoleGroup, req: StageRequest) -> None:
        try:
            await self._adapt_inputs(group, req)
        except asyncio.CancelledError:
            if not (self.over or req.done):  # raised by a library: the other roles would wait until the stall
                self.fail(StageFailed(f"{req.info.name} cancelled the role {req.role} unexpectedly; try again"))
            raise

    async def _adapt_inputs(self, group: RoleGroup, req: StageRequest) -> None:
        async with aclosing(group.stage.adapt(req, req.inputs)) as adapted:
            async for item in adapted:
                if req.clock is not None:
                    await self._hear(req, req.clock, item)
                    continue
                while req.in_step or len(req.pending) >= req.info.max_pending:
                    req.consumed.clear()
                    await req.consumed.wait()
                req.pending.append(item)
                req.silent_steps = 0
                req.waits = False
                self._wake()
        while req.in_step:
            req.consumed.clear()
            await req.consumed.wait()
        req.ended = True
        req.waits = False
        if req.clock is not None:
            req.clock.ended = True
        self._wake()

    async def _hear(self, req: StageRequest, clock: FrameClock, pcm: Pcm) -> None:
        """Pass the user's sound to the clock of a duplex session. Wait while enough of it is waiting."""
        while clock.full:
            req.consumed.clear()
            await req.consumed.wait()
        clock.feed(pcm)
        if clock.awaited:
            self._wake()

    def ready(self, group: RoleGroup, req: StageRequest, now_s: float) -> bool:
        """Whether the request can step at a stage: it has work, and there is room for its output."""
        if self._over.is_set() or req.done:
            return False
        if req.on_clock:
            return self.wait_s(req, now_s) <= 0
        if self._credit <= 0 or not req.ready:
            return False
        if group.guided and not all(other.ready for other in group.reqs):
            return False
        if group.following is not None and group.following.full:
            return False
        return self.wait_s(req, now_s) <= 0

    def wait_s(self, req: StageRequest, now_s: float) -> float:
        """Return the seconds that an audio stage should wait because its listener has enough audio; 0 or less: none.

        A duplex stage waits until its next frame is due.
        """
        if req.clock is not None and req.on_clock:
            return req.clock.wait_s(now_s)
        lead_s = self.request.lead_s
        waits = self.listener.speculative or self.listener.started_s is not None
        if lead_s is None or not req.info.sounds or not waits:
            return 0.0
        return self.listener.slack_s(now_s) - lead_s

    def stepped(
        self, group: RoleGroup, req: StageRequest, chunks: Sequence[Chunk] | EngineError, began_s: float, ended_s: float
    ) -> None:
        """Process the result of a step. If the result is an error, raises it."""
        if isinstance(chunks, EngineError):
            raise chunks
        req.consumed.set()
        if req.clock is not None and req.frame is not None:
            chunks = self._frame_made(req, req.clock, req.frame, chunks, ended_s)
        elif not chunks and not req.waits:
            self._check_silence(req)
        else:
            req.silent_steps = 0
        if chunks and "out" not in req.marks:
            req.marks |= {"step": began_s, "out": ended_s}
            self._mark(req)
        for chunk in chunks:
            self._give(group, req, chunk, ended_s)
        if req.done and "done" not in req.marks:
            self._finish(group, req, ended_s)

    def _frame_made(
        self, req: StageRequest, clock: FrameClock, frame: DuplexFrame, chunks: Sequence[Chunk], ended_s: float
    ) -> Sequence[Chunk]:
        """Number the chunks of a frame. If the reader does not read, they are dropped: the session never waits."""
        req.frame = None
        req.done = clock.over
        clock.counts.late += clock.late(frame, ended_s)
        if self._credit < len(chunks):
            clock.counts.unread += 1
            return ()
        return [replace(chunk, frame=frame.number) if isinstance(chunk, Audio | Text) else chunk for chunk in chunks]

    def _check_silence(self, req: StageRequest) -> None:
        """Raise Stalled for a stage that keeps stepping without input or output."""
        req.silent_steps += 1
        if req.silent_steps >= MOST_SILENT_STEPS:
            raise Stalled(f"{req.info.name} made {MOST_SILENT_STEPS} steps without input or output")

    def _give(self, group: RoleGroup, req: StageRequest, chunk: Chunk, now_s: float) -> None:
        """Process a chunk of a role. Only the main role's chunks form the answer; a joined group also collects them.

        Raises StageFailed for an invalid array: the server would close the connection of the worker that sends it.
        """
        if fault := array_fault(chunk):
            raise StageFailed(f"stage {req.info.name}: {fault}")
        if group.joined and chunk.kind in req.info.feeds:
            req.given.append(chunk)
        if req is not group.main:
            return
        if isinstance(chunk, Audio):
            self.listener.produce(seconds(chunk.wave, SPEAKER_RATE_HZ), now_s)
        chunk = self._in_language(chunk)
        if (new := self.recovery.made(req, chunk)) is not None:
            self._route(group, new)

    def _in_language(self, chunk: Chunk) -> Chunk:
        """Remember the language of the user's turn from its transcript, and add it to the answer's text."""
        match chunk:
            case Transcript(language=language) if language:
                self._language = language
            case Text(language="") | VoiceText(language="") if self._language:
                return replace(chunk, language=self._language)
            case _:
                pass
        return chunk

    def _route(self, group: RoleGroup, chunk: Chunk) -> None:
        """Send a chunk to the client, to the next stage, or to both, as the stage declares."""
        info = group.stage.info
        client = chunk.kind in info.emits or (self.request.dump and isinstance(chunk, Codes))
        self._pass_on(group, chunk, client, not group.joined and chunk.kind in info.feeds)

    def _pass_on(self, group: RoleGroup, chunk: Chunk, client: bool, further: bool) -> None:
        to_client = self.recovery.for_client(chunk) if client else None
        onward = None
        following = group.following
        if further and following is not None:
            following.feed(chunk, self._wake)
        elif further:
            onward = self.recovery.for_next_hop(chunk)
        if to_client is not None:
            self._emit(to_client, True, onward is to_client)
        if onward is not None and onward is not to_client:
            self._emit(onward, False, True)

    def _finish(self, group: RoleGroup, req: StageRequest, now_s: float) -> None:
        """End a role. A guided group ends with its main role. Unread input is dropped, so no earlier stage waits."""
        req.marks |= {"done": now_s, "cut": now_s} if req.cut else {"done": now_s}
        self._mark(req)
        if group.joined:
            self._send_marks()  # a stall error names the roles that have not ended
        early = req.cut and not req.inputs.ended
        req.inputs.drop()
        if group.guided and req is group.main:
            for companion in group.reqs[1:]:
                companion.done = True
                companion.inputs.drop()
        if not group.done:
            return
        if (bundle := group.bundle()) is not None:
            self._pass_on(group, bundle, client=False, further=True)
        if (following := group.following) is not None:
            following.close()
        if early:
            self._stop_answers_before(group, now_s)
        if all(other.done for other in self.groups):
            self._over.set()

    def _stop_answers_before(self, group: RoleGroup, now_s: float) -> None:
        """Stop the thinkers of a voice that was cut off: the rest of the answer could not be heard."""
        for other in self.groups[: self.groups.index(group)]:
            for req in other.reqs if other.stage.info.answers else ():
                if not (req.done or req.in_step):
                    req.done = True
                    req.cut = True
                    self._adapters[req].cancel()
                    self._finish(other, req, now_s)

    def _mark(self, req: StageRequest) -> None:
        """Collect the timeline events of a request in its role (main or a companion).

        The events are sent with the next message.
        """
        self._marks |= {req.mark(word): at_s for word, at_s in req.marks.items()}

    def _send_marks(self) -> None:
        if self._marks:
            marks = self._marks
            self._marks = {}
            self._send(messages.Marks(self.id, marks))

    def _emit(self, chunk: Chunk, client: bool, onward: bool) -> None:
        self._credit -= 1
        marks = self._marks
        self._marks = {}
        self._send(messages.Emit(self.id, chunk, client, onward, self.recovery.take_checkpoints(), marks))

    def fail(self, error: EngineError) -> None:
        """End the run with an error, which is its last message."""
        self._error = self._error or error
        self.close()

    def close(self) -> None:
        """End the run: none of its requests steps again."""
        self._over.set()
        for group in self.groups:
            for req in group.reqs:
                req.closed = True

    def forget(self) -> None:
        """Release the state of an ended run. A request that a thread still steps keeps its state until the step
        returns.

        References in cycles are cut, so that the request and its pictures are freed at once: the garbage collector does
        not know how large they are.
        """
        self.inputs.set_reader(None)
        for req in [req for group in self.groups for req in group.reqs if not req.in_step]:
            req.state = None
            req.group = ()

    def feed(self, chunk: Chunk) -> None:
        """Take a chunk from the server. After the first stage's end, it is only credited."""
        self.inputs.put(chunk)

    def grant(self, n: int) -> None:
        self._credit += n
        self._wake()

    def commit(self, now_s: float) -> None:
        """End the input. From now on the answer is awaited."""
        self.inputs.close()
        if not self.listener.committed:
            self.listener.committed = True
            self.listener.arrived_s = now_s
        self._wake()

    def report(self, state: messages.PlayoutState, since_s: float) -> None:
        """Record the playback state. ``since_s`` is the time at which the first sample played, or would have."""
        self.listener.speculative = state == "held"
        if state == "playing":
            self.listener.started_s = since_s
        self._wake()

    def _took_input(self) -> None:
        self._taken += 1
        if self._taken == messages.GRANT:
            self._taken = 0
            self._send(messages.Grant(self.id, messages.GRANT))
