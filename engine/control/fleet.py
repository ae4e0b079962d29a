"""The workers of an engine: started, monitored, restarted after a loss, added and removed at run time.

Every change ends in a join, drain or leave of a pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from engine.control.balance import Member
from engine.control.hop import Pool
from engine.control.join_listener import Cluster, JoiningWorker
from engine.control.membership import Membership
from engine.control.placement import JoiningWorkers, Launcher, Placement
from engine.control.pool import StagePool
from engine.control.replica import RemoteWorker, StageReplica
from engine.control.replica_info import ReplicaInfo
from engine.core import StageInfo
from engine.deployment.config import EngineSpec
from engine.errors import EngineError, ReplicaLost, StageUnavailable, WeightsError, plain
from engine.ipc import messages
from engine.ipc.processor_time import ProcessorTime

log = logging.getLogger(__name__)

SAME_CLOCK_S = 1.0  # clocks of two machines differ by more; a heartbeat on one machine never takes that long
UNREAD = 4  # turns of the event loop in which heartbeats that arrived while it was blocked are read


class Fleet:
    """The workers of a spec. ``start`` returns when every stage has its replicas, ``close`` when all have ended.

    ``label`` distinguishes them from workers of other fleets in this process.
    """

    def __init__(self, spec: EngineSpec, launcher: Launcher, label: str = "") -> None:
        self.pools: dict[str, Pool] = {}
        self._label = label
        self._spec = spec
        self._launcher = launcher
        self._loop = asyncio.get_running_loop()
        self._membership = Membership(spec.heartbeat, self._loop.time)
        self.placements: dict[str, Placement] = {}
        self._workers: dict[str, RemoteWorker] = {}
        """Every worker that has joined, by its id, until its process has ended. Includes draining workers."""
        self._changed = asyncio.Event()
        """Set when a deadline of a worker may have become earlier."""
        self._has_worker = {stage: asyncio.Event() for worker in spec.workers for stage in worker.stages}
        self._cluster = Cluster(spec.cluster, lambda joining: self.spawn(self._take_in(joining), "join"))
        self._joining = JoiningWorkers(spec.workers, self.placements)
        self._group = asyncio.TaskGroup()
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the deployment. Raises the EngineError that prevents it."""
        opened = asyncio.Event()
        self._running = asyncio.create_task(self._run(opened), name="fleet")
        await opened.wait()
        await self._cluster.open()
        hosts = enumerate(self._spec.workers)
        placements = [self.placement(host, replica) for host, one in hosts for replica in range(one.replicas)]
        try:
            async with asyncio.timeout(self._spec.start_s), asyncio.TaskGroup() as starting:
                for placement in placements:
                    starting.create_task(self.begin(placement), name=f"start:{placement.name}")
                for worker in self._spec.workers:
                    for stage in worker.stages if not worker.replicas else ():
                        starting.create_task(self._has_worker[stage].wait(), name=f"await:{stage}")
        except TimeoutError:
            raise StageUnavailable(
                f"the workers were not ready within {self._spec.start_s:g} s. "
                "Large models load slowly: set a longer start_s"
            ) from None
        except BaseExceptionGroup as group:
            error = plain(group)
            if isinstance(error, EngineError):
                raise error from None
            raise EngineError(f"a worker could not be started: {error!r}") from error

    async def close(self) -> None:
        """Stop every worker, even if some cannot be stopped. May be called twice."""
        self._cluster.close()
        for pool in self.pools.values():
            pool.close()
        if self._running is not None:
            self._running.cancel()
            try:
                await asyncio.wait([self._running])
            except asyncio.CancelledError:
                for task in self._tasks:  # do not wait for the workers' ends
                    task.cancel()
                await asyncio.wait([self._running])
                raise

    def labelled(self, name: str) -> str:
        """Return the name of a stage or worker, with this fleet's label if it has one."""
        return f"{self._label}/{name}" if self._label else name

    def replicas(self) -> list[ReplicaInfo]:
        """Return the state of every replica, in the order of the stages."""
        pools = sorted(self.pools.values(), key=lambda pool: pool.info.order)
        return [self._info(pool, member) for pool in pools for member in pool.members()]

    async def _run(self, opened: asyncio.Event) -> None:
        """Own every task of the fleet; cancelling this one stops all workers."""
        try:
            async with self._group:
                opened.set()
                await self._watch()
        finally:  # `_keep` stops its worker, but not if it is cancelled before its first step
            for placement in self.placements.values():
                if placement.worker is not None:
                    await self._stop(placement, placement.worker)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as a task of the fleet. It ends with the fleet, and must not fail."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def placement(self, host: int, replica: int) -> Placement:
        """Create an empty placement for a replica of an entry of ``workers:``."""
        spec = self._spec.workers[host]
        name = self.labelled(f"worker{host}.{replica}")
        placement = Placement(name, spec, spec.device(replica), self._launcher, host, replica)
        self.placements[placement.name] = placement
        return placement

    async def begin(self, placement: Placement) -> None:
        """Start a worker for a placement, replacing the current one, and restart it after losses.

        Raises the EngineError that prevents the start; StageUnavailable if the worker is not ready in time.
        """
        worker = await self._launch(placement)
        self.spawn(self._keep(placement, worker), f"keep:{worker.id}")

    async def _launch(self, placement: Placement) -> RemoteWorker:
        worker = RemoteWorker(self._membership.issue(placement.name))
        whole = self._spec
        task = messages.Task(
            worker.id,
            whole.stages,
            placement.spec,
            placement.device,
            whole.chunks,
            whole.heartbeat.interval_s,
        )
        limit = asyncio.timeout(self._spec.start_s)
        try:
            async with limit:
                await placement.launcher.start(task, worker)
                self._join(placement, worker, await worker.hello)
        except BaseException as error:
            await self._stop(placement, worker)
            if isinstance(error, TimeoutError) and limit.expired():
                message = f"the worker {placement.name} was not ready within {self._spec.start_s:g} s"
                raise StageUnavailable(message) from None
            raise
        return worker

    def _join(self, placement: Placement, worker: RemoteWorker, hello: messages.Hello) -> None:
        if not worker.alive:
            raise ReplicaLost(f"the worker {worker.id} ended as soon as it was ready")
        if not placement.wanted:
            raise StageUnavailable(f"the worker {worker.id} was removed while it started")
        for info in hello.stages:
            self._check_vocabulary(info)
        placement.worker = self._workers[worker.id] = worker
        for info in hello.stages:
            pool = self.pools.get(info.name)
            if pool is None:
                pool = self.pools[info.name] = StagePool(info, self._spec.balance, self._spec.queue, self._spec.empty_s)
            replica = StageReplica(f"{info.name}@{worker.id}", info.name, worker)
            pool.join(replica, info.slots)
            self._has_worker[info.name].set()
            worker.on_lost.append(lambda pool=pool, replica=replica: pool.leave(replica.id))
        worker.on_lost.append(lambda: self._membership.leave(worker.id))
        worker.on_beat = lambda beat: self._beat(placement, worker, beat)
        worker.on_blocking = lambda step: self._blocking(worker, step)
        worker.on_leave = lambda: self.spawn(self.retire(worker), f"retire:{worker.id}")
        self._membership.join(worker.id)
        self._changed.set()

    def _check_vocabulary(self, info: StageInfo) -> None:
        """Raise WeightsError if a replica's tokenizer differs from the one of the running replicas."""
        pool = self.pools.get(info.name)
        if pool is not None and len(pool) and pool.info.facets.tokenizer != info.facets.tokenizer:
            raise WeightsError(
                f"this worker's {info.name} has a different tokenizer than the running replicas; give it the "
                "same weights, or restart the server"
            )

    def _beat(self, placement: Placement, worker: RemoteWorker, beat: messages.Beat) -> None:
        if self._membership.beat(worker.id, beat) is not None:
            behind_s = self._loop.time() - beat.at_s if beat.at_s is not None else 0.0
            worker.behind_s = behind_s if abs(behind_s) > SAME_CLOCK_S else 0.0
            for stage in beat.queues:
                if stage in self.pools:
                    load = beat.queues[stage], beat.step_s.get(stage, 0.0)
                    self.pools[stage].report(f"{stage}@{worker.id}", *load)

    def _blocking(self, worker: RemoteWorker, step: messages.Blocking) -> None:
        self._membership.blocking(worker.id, step)
        self._changed.set()

    async def _watch(self) -> None:
        """Fence off workers that are silent or stuck. A failed check affects no request and is repeated."""
        while True:
            try:
                await self._look_when_due()
            except Exception:  # an error in monitoring must not stop the server
                log.exception("checking the workers failed")
                await asyncio.sleep(self._spec.heartbeat.interval_s)

    async def _look_when_due(self) -> None:
        due_s = self._membership.due_s
        self._changed.clear()
        try:
            async with asyncio.timeout_at(due_s if self._membership else None):
                await self._changed.wait()
        except TimeoutError:
            for _ in range(UNREAD):
                await asyncio.sleep(0)
            for loss in self._membership.look(self._processor_time):
                self._give_up(loss.worker, loss.why)

    def _processor_time(self, id: str) -> ProcessorTime | None:
        return self._workers[id].processor_time() if id in self._workers else None

    def _give_up(self, id: str, why: str) -> None:
        if worker := self._workers.get(id):
            log.warning("the worker %s is stopped: %s", id, why)
            worker.hung = True
            worker.fence()

    async def _keep(self, placement: Placement, worker: RemoteWorker) -> None:
        """Wait for the end of a worker, and start its successor unless one exists already or none is needed.

        Each worker has its own task for this, because draining a worker may take long.
        """
        if await self._outlive(placement, worker):
            while placement.wanted and placement.worker is None:
                await self._bring_back(placement)

    async def _outlive(self, placement: Placement, worker: RemoteWorker) -> bool:
        """Wait for the end of a worker and clean up. Return whether its placement is empty afterwards."""
        try:
            await worker.gone.wait()
        finally:
            await self._stop(placement, worker)
        del self._workers[worker.id]
        if placement.worker is not worker:  # a successor has taken over
            return False
        placement.worker = None
        if not worker.retired:
            self._membership.lost(placement.name)
            log.warning("the worker %s was lost", worker.id)
        return True

    @staticmethod
    async def _stop(placement: Placement, worker: RemoteWorker) -> None:
        """Stop a worker. A failure to do so is logged, and affects no other worker."""
        try:
            await placement.launcher.stop(worker)
        except Exception:  # launchers may raise anything
            log.exception("the worker %s could not be stopped", worker.id)

    async def _bring_back(self, placement: Placement) -> None:
        await asyncio.sleep(self._membership.penalty_s(placement.name, self._lonely(placement)))
        async with placement.filling:
            if placement.worker is not None or not placement.wanted:
                return
            try:
                await self.begin(placement)
            except (EngineError, OSError) as error:  # a TimeoutError is one of the latter
                self._membership.lost(placement.name)
                log.warning("the worker %s could not be restarted: %s", placement.name, error)
            else:
                log.warning("the worker %s has been restarted", placement.name)

    async def _take_in(self, joining: JoiningWorker) -> None:
        """Start a worker that joins from another machine, and wait for its end."""
        try:
            placement = self._joining.placement(joining)
        except EngineError as error:
            log.warning("a joining worker is refused: %s", error)
            joining.refuse(error.code, str(error))
            return
        if (before := self.placements.get(placement.name)) and before.worker:
            before.worker.fence()  # its connection is lost: otherwise it would not join again
        self.placements[placement.name] = placement
        try:
            await asyncio.sleep(self._membership.penalty_s(placement.name, self._lonely(placement)))
            worker = await self._launch(placement)
            log.info("the worker %s has joined", worker.id)
            await self._outlive(placement, worker)
        except (EngineError, TimeoutError) as error:
            self._membership.lost(placement.name)
            log.warning("the worker %s could not join: %s", placement.name, error)
        finally:
            joining.drop()
            if self.placements.get(placement.name) is placement:
                del self.placements[placement.name]

    def _lonely(self, placement: Placement) -> bool:
        return any(not self.pools[stage].slots for stage in placement.spec.stages if stage in self.pools)

    async def retire(self, worker: RemoteWorker) -> None:
        """Drain a worker for at most ``drain_s`` seconds, then stop it."""
        held = [
            (pool, member.replica.id)
            for pool in self.pools.values()
            for member in pool.members()
            if member.replica.host is worker
        ]
        worker.retired = True
        for pool, id in held:
            pool.drain(id)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._spec.drain_s):
                for pool, id in held:
                    await pool.emptied(id)
        for pool, id in held:
            pool.leave(id)
        worker.close()

    def _info(self, pool: Pool, member: Member[StageReplica]) -> ReplicaInfo:
        id = member.replica.worker
        name, _, number = id.rpartition("#")
        life = self._membership.life(id)
        return ReplicaInfo(
            stage=pool.info.name,
            replica=name,
            incarnation=int(number),
            state="draining" if member.draining else "up",
            leased=len(member.leases),
            slots=member.slots,
            queue=member.queue,
            step_ms=member.step_s * 1000,
            age_s=self._loop.time() - life.joined_s if life else 0.0,
            remembered=life.beat.remembered.get(pool.info.name) if life else None,
            duplex=life.beat.duplex.get(pool.info.name) if life else None,
            unavailable=life.beat.unavailable.get(pool.info.name, "") if life else "",
        )
