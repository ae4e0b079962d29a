"""The step loop of a worker: read messages, schedule, step, send results.

A worker hosts stages on a device. Steps run in the event loop's thread. Between two steps, the loop reads messages and
runs the adapters, so nothing needs a lock. Only a blocking stage steps in its own thread; until that step returns, the
loop does not touch its requests. Messages leave through ``send``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from engine.chunk import Chunk
from engine.core import DuplexCounts
from engine.deployment.config import ChunkSpec, Schedule
from engine.errors import EngineError
from engine.ipc import messages
from engine.worker.frame_clock import FrameClock
from engine.worker.listener import Listener
from engine.worker.loop.free_slots import FreeSlots
from engine.worker.loop.prefix import Prefixes
from engine.worker.loop.prewarm import Preparing
from engine.worker.loop.recovery import RunRecovery
from engine.worker.loop.run import Run, Send
from engine.worker.loop.scheduler import Scheduler
from engine.worker.loop.step import Computed, Stepping, StepUnderWay, compute, deadline_s
from engine.worker.loop.step_thread import StepThread
from engine.worker.pace import ListenerPace
from engine.worker.stage import Preparer, Stage, failed
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Broken, Streamed, asks

log = logging.getLogger(__name__)

FRAME_S = 0.04  # frame length for stages that declare none
SETTLE = 2  # turns of the event loop from a request's arrival to its first input: its task, then its adapters run


class Worker:
    """Stages and their runs. ``receive`` processes a message without waiting; ``serve`` runs the loop.

    ``device_answers`` checks whether the device still works, after a stage has failed. If it does not, the worker ends,
    and its requests continue elsewhere.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage],
        chunks: ChunkSpec,
        max_batch: Mapping[str, int],
        send: Send,
        clock: Callable[[], float] = time.monotonic,
        schedule: Schedule = "urgency",
        device_answers: Callable[[], bool] = lambda: True,
    ) -> None:
        self.stages = stages
        self.steps = 0
        self._chunks = chunks
        self._send = send
        self._clock = clock
        self._device_answers = device_answers
        most = {name: min(max_batch[name], stage.info.batch or max_batch[name]) for name, stage in stages.items()}
        self._scheduler = Scheduler(most, schedule)
        self._free = FreeSlots({name: stage.info.slots for name, stage in stages.items()})
        self._frames = {name: DuplexCounts() for name, stage in stages.items() if stage.info.facets.duplex}
        self._runs: dict[str, tuple[Run, asyncio.Task[None]]] = {}
        self._threads: dict[str, StepThread[Computed]] = {}
        self._under_way: dict[str, StepUnderWay] = {}
        self._trying: tuple[str, ...] = ()
        self._next: asyncio.Handle | None = None  # the loop's next turn, if one is scheduled
        self._settling = 0  # turns to wait before a step, so that requests that arrive together step together
        self._timer: asyncio.TimerHandle | None = None
        self._broken: asyncio.Future[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._preparing = Preparing()

    @property
    def runs(self) -> int:
        """The number of open runs."""
        return len(self._runs)

    @property
    def in_step(self) -> bool:
        """Whether a blocking stage is in a step, which cannot be interrupted."""
        return bool(self._under_way)

    @property
    def free(self) -> dict[str, int]:
        """Return the number of free slots of each stage."""
        return self._free.counts

    def beat(self, id: str) -> messages.Beat:
        """Return the heartbeat, which also tells the server the worker's load."""
        now_s = self._clock()
        stepping, step_s = list(self._stepping()), dict(self._scheduler.step_s)
        moving = [
            (run, req) for run, group, req in stepping if req.in_step or req.waits or run.ready(group, req, now_s)
        ]
        queues = dict.fromkeys(self.stages, 0) | Counter(req.info.name for _, req in moving if not req.in_step)
        kept = {name: getattr(stage, "prefixes", None) for name, stage in self.stages.items()}
        remembered = {name: prefixes.counts for name, prefixes in kept.items() if isinstance(prefixes, Prefixes)}
        down = {name: stage.unavailable for name, stage in self._streamed() if stage.unavailable}
        living = [run for run, group, req in stepping if asks(group.stage, req) or req.clock is not None]
        runs = {run.id for run in living} | {run.id for run, _ in moving}
        frames = {name: replace(counts) for name, counts in self._frames.items()}
        return messages.Beat(id, self.steps, queues, step_s, now_s, remembered, down, tuple(runs), frames)

    async def serve(self) -> None:
        """Run until cancelled. Cancelling ends every run, without waiting for steps of blocking stages.

        It also ends if the ``watch`` of a stage raises Broken.
        """
        self._broken = asyncio.get_running_loop().create_future()
        self._threads = {name: StepThread(name) for name, stage in self.stages.items() if stage.info.blocking}
        try:
            async with asyncio.TaskGroup() as self._group:
                for name, stage in self._streamed():
                    self._group.create_task(self._watch(stage), name=f"watch:{name}")
                await self._broken
        finally:
            self._broken.cancel()
            if self._timer is not None:
                self._timer.cancel()
            for thread in self._threads.values():
                thread.close()
            for _, stage in self._streamed():
                await stage.aclose()

    def _streamed(self) -> list[tuple[str, Streamed]]:
        return [(name, stage) for name, stage in self.stages.items() if isinstance(stage, Streamed)]

    async def _watch(self, stage: Streamed) -> None:
        """Run a stage's own watch. An unexpected error in it ends no answer."""
        try:
            await stage.watch()
        except Broken:
            raise
        except Exception:
            log.exception("the stage %s stopped checking its server", stage.info.name)

    def _wake(self) -> None:
        """Schedule a turn of the loop, after the current callbacks of the event loop."""
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Make one step, then let the event loop read messages and run the adapters."""
        self._next = None
        assert self._broken is not None
        if self._broken.done():
            return
        if self._settling:
            self._settling -= 1
            self._wake()
            return
        try:
            now_s = self._clock()
            batch = self._pick(now_s)
            if batch:
                name = batch[0][1].stage.info.name
                if name in self._threads:
                    self._begin_step(name, batch)
                else:
                    self._step(batch)
                self._wake()
            else:
                self._try(())
                self._rest(now_s)
        except Exception as error:  # noqa: BLE001 - a bug in the loop ends `serve`, which raises it
            self._broken.set_exception(error)

    def receive(self, message: messages.Message) -> None:
        """Process a message from the server. Messages about ended runs are ignored."""
        match message:
            case messages.Open():
                self._open(message)
            case messages.Feed(run, chunk) if run in self._runs:
                self._runs[run][0].feed(chunk)
            case messages.End(run) if run in self._runs:
                self._runs[run][0].commit(self._clock())
            case messages.Grant(run, n) if run in self._runs:
                self._runs[run][0].grant(n)
            case messages.PlayoutUpdate(run, state, skipped_s) if run in self._runs:
                self._runs[run][0].report(state, self._clock() - skipped_s)
            case messages.Prepare():
                self._prepare(message)
            case messages.Close(run) if run in self._runs:
                closed, task = self._runs[run]
                closed.close()
                task.cancel()
            case messages.Close(run):
                self._preparing.drop(run)
            case _:
                pass

    def _prepare(self, message: messages.Prepare) -> None:
        """Start to prepare a stage for a coming request.

        Does nothing if the stage is not hosted here, is unavailable, or cannot prepare.
        """
        assert self._group is not None
        stage, request = self.stages.get(message.stage), message.request
        if isinstance(stage, Preparer) and not getattr(stage, "unavailable", ""):
            self._preparing.begin(self._group, message.run, request.session, stage.prepare(request))

    def _open(self, message: messages.Open) -> None:
        assert self._group is not None
        # Stages that do not take speech are only opened when the user's turn has ended.
        over = not message.request.live or not self._hears(message.stages[:1])
        self._try((*self._trying, message.run))  # its stages open it, and its adapters start, before the next step
        listener, recovery = Listener(self._clock(), committed=over), RunRecovery(message.resume)
        run = Run(message.run, message.request, self._send, message.credit, listener, self._wake, recovery)
        if message.playout is not None:
            run.report(message.playout, self._clock())
        if message.resume is not None:
            listener.resume(recovery.given_s, recovery.playing_s, self._clock())
        task = self._group.create_task(self._work(run, message.stages), name=f"run:{run.id}")
        self._runs[run.id] = run, task
        # Not in the task's own `finally`: a task that is cancelled before it starts never gets there.
        task.add_done_callback(lambda _: self._runs.pop(run.id))
        self._settling = SETTLE
        self._wake()

    def _hears(self, stages: tuple[str, ...]) -> bool:
        infos = [self.stages[name].info for name in stages if name in self.stages]
        return any("speech" in info.takes and info.facets.duplex is None for info in infos)

    async def _work(self, run: Run, stages: tuple[str, ...]) -> None:
        taken: list[tuple[str, int]] = []
        try:
            for name in stages:
                stage = self.stages[name]
                roles = run.request.roles if stage.info.group else run.request.roles[:1]
                slots: dict[str, int] = {}
                for role in roles:  # waits at most until closed runs have released their slots
                    slots[role] = await self._free.take(name)
                    taken.append((name, slots[role]))
                self._host(stage, run, slots)
            await run.work()
        except EngineError as error:
            self._send(messages.Failed(run.id, error.code, str(error)))
        except Exception as error:  # noqa: BLE001 - any error that a model raises for one request ends only that request
            broken = failed(" or ".join(stages), run.request.id, error)
            if self._device_lost():
                return
            self._send(messages.Failed(run.id, broken.code, str(broken)))
        finally:
            run.close()
            run.forget()
            for name, slot in taken:
                self._release(name, slot)
                self._try_again(name)

    def _release(self, name: str, slot: int) -> None:
        """Release a slot. A slot of a running step is only released when the step has returned."""
        under_way = self._under_way.get(name)
        if under_way is not None and under_way.holds(slot):
            under_way.released.append(slot)
        else:
            self._free.release(name, slot)

    def _try_again(self, name: str) -> None:
        """Let the waiting requests of a stage try again, because another request has ended."""
        for req in [req for _, _, req in self._stepping() if req.waits and req.info.name == name]:
            req.waits = False
            self._wake()

    def _host(self, stage: Stage, run: Run, slots: Mapping[str, int]) -> None:
        """Open a request at a stage, in each of its roles. Raises what the stage raises."""
        info = stage.info
        kept = run.recovery.kept(info, len(slots))
        pace = ListenerPace(
            self._chunks, run.listener, info.facets.frame_s or FRAME_S, lambda: self._scheduler.round_s, self._clock
        )
        reqs = [
            StageRequest(
                run.request,
                slot,
                pace,
                role,
                kept=kept,
                info=info,
                listener=run.listener,
                alone=run.recovery.alone,
                whole=run.recovery.whole,
            )
            for role, slot in slots.items()
        ]
        run.host(stage, reqs)
        for req in reqs:
            if info.facets.duplex is not None:
                req.clock = FrameClock(info.facets.duplex, self._frames[info.name], self._clock())
            stage.open(req)

    def _stepping(self) -> Iterator[Stepping]:
        for run, _ in self._runs.values():
            for group in run.groups:
                for req in group.stepping:
                    yield run, group, req

    def _pick(self, now_s: float) -> list[Stepping]:
        stepping = [one for one in self._stepping() if one[2].info.name not in self._under_way]
        ready = {req: (run, group) for run, group, req in stepping if run.ready(group, req, now_s)}
        among = (req for _, _, req in self._stepping())
        picked = self._scheduler.pick(ready, now_s, among, self._next_frame(stepping) if self._frames else None)
        if picked and any(req.being_read for _, _, req in stepping):
            self._settling = SETTLE  # so that input that arrives during this step is read before the next pick
        for req in picked:
            if req.clock is not None and req.on_clock:
                req.frame = req.clock.take(now_s)
                req.pending.append(req.frame.wave)
        return [(*ready[req], one) for req in picked for one in req.together]

    @staticmethod
    def _next_frame(stepping: Sequence[Stepping]) -> StageRequest | None:
        """Return the duplex session whose frame is due next."""
        clocks = [(req.clock.due_s, n) for n, (_, _, req) in enumerate(stepping) if req.clock is not None]
        return stepping[min(clocks)[1]][2] if clocks else None

    def _step(self, batch: list[Stepping]) -> None:
        stage = batch[0][1].stage
        self._try(tuple(dict.fromkeys(run.id for run, _, req in batch if not req.stepped)))
        computed = compute(stage, [req for _, _, req in batch], self._clock, tuple(self.stages.values()))
        if computed.broke and self._device_lost():
            return
        self._try(())
        self._note(stage, computed)
        for one, result in zip(batch, computed.results, strict=True):
            self._give(one, result, computed)

    def _begin_step(self, name: str, batch: list[Stepping]) -> None:
        """Step a blocking stage in its thread, after reporting the step's deadline to the server."""
        stage, reqs = batch[0][1].stage, [req for _, _, req in batch]
        self._under_way[name] = StepUnderWay(batch)
        for req in reqs:
            req.in_step = True
        self._try(())
        self._send(messages.Blocking(name, deadline_s(stage, reqs)))
        work = functools.partial(compute, stage, reqs, self._clock)
        begin = functools.partial(self._threads[name].begin, work, functools.partial(self._returned, name))
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, begin)  # the call may hold the GIL, so messages must leave before it

    def _returned(self, name: str, computed: Computed) -> None:
        """Process the results of a blocking step. Results of ended runs are dropped."""
        assert self._broken is not None
        if self._broken.done():
            return
        try:
            under_way = self._under_way.pop(name)
            self._send(messages.Blocking(name, 0.0))
            self._try(tuple(run for run in self._trying if run not in under_way.runs))
            self._note(self.stages[name], computed)
            for one, result in zip(under_way.batch, computed.results, strict=True):
                one[2].in_step = False
                if one[0].over:
                    one[2].state = None
                else:
                    self._give(one, result, computed)
            for slot in under_way.released:
                self._free.release(name, slot)
            self._wake()
        except Exception as error:  # noqa: BLE001 - a bug in the loop ends `serve`, which raises it
            self._broken.set_exception(error)

    def _device_lost(self) -> bool:
        """Whether the device no longer works. If so, the worker ends."""
        assert self._broken is not None
        if not self._broken.done() and not self._device_answers():
            self._broken.set_exception(Broken("the device no longer works, so its worker ends"))
        return self._broken.done()

    def _note(self, stage: Stage, computed: Computed) -> None:
        self.steps += 1
        self._scheduler.timed(stage.info.name, computed.ended_s - computed.began_s)

    def _give(self, one: Stepping, result: Sequence[Chunk] | EngineError, computed: Computed) -> None:
        """Process the result of a step for one request."""
        run, group, req = one
        req.stepped = True
        try:
            run.stepped(group, req, result, computed.began_s, computed.ended_s)
            if req.done:
                self._try_again(req.info.name)
        except EngineError as error:
            run.fail(error)
        except Exception as error:  # noqa: BLE001 - an invalid result ends its request, never the loop
            run.fail(failed(req.info.name, run.request.id, error))

    def _try(self, runs: tuple[str, ...]) -> None:
        """Report the suspects if this worker is lost now: these runs, and those in a running blocking step."""
        if self._under_way:
            runs = tuple(dict.fromkeys((*runs, *(run for step in self._under_way.values() for run in step.runs))))
        if runs != self._trying:
            self._trying = runs
            self._send(messages.Trying(runs))

    def _rest(self, now_s: float) -> None:
        """Wait for input, credit, or a listener's playback. Only the last one needs a timer.

        ``now_s`` is the time of the last pick. Requests that have become due since then must still be woken.
        """
        waits = [s for run, _, req in self._stepping() if (s := run.wait_s(req, now_s)) > 0] + self._scheduler.held_s
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(min(waits), self._wake) if waits else None
