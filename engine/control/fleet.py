"""The workers of an engine: started, watched, brought back when they are lost, added and taken away while it serves.

Every change ends in a pool's join, drain or leave. Knows no request, and not what runs in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from engine import wire
from engine.config import EngineSpec
from engine.control.door import Cluster, Guest
from engine.control.membership import Membership
from engine.control.pool import Member, StagePool
from engine.control.post import Guests, Launcher, Post
from engine.control.replica import RemoteWorker, StageReplica
from engine.core import ModelInfo, ReplicaInfo
from engine.errors import ConfigError, EngineError, ReplicaLost, StageUnavailable, plain

log = logging.getLogger(__name__)

Pool = StagePool[StageReplica]
SAME_CLOCK_S = 1.0  # clocks of two machines started at other times; a beat of this one is never so late
UNREAD = 4  # turns of the event loop in which a beat that came while it was held up is heard, before anybody is judged


class Fleet:
    """``start`` returns when every stage has its replicas; ``close`` when no worker is left."""

    def __init__(self, spec: EngineSpec, launcher: Launcher) -> None:
        self.pools: dict[str, Pool] = {}
        self.model: ModelInfo | None = None
        self._spec, self._launcher = spec, launcher
        self._loop = asyncio.get_running_loop()
        self._membership = Membership(spec.heartbeat, self._loop.time)
        self.posts: dict[str, Post] = {}
        self._line: tuple[str, ...] = ()
        self._joined = asyncio.Event()
        self._hosted = {stage: asyncio.Event() for worker in spec.workers for stage in worker.stages}
        self._cluster = Cluster(spec.cluster, lambda guest: self.spawn(self._take_in(guest), "guest"))
        self._guests = Guests(spec.workers)
        self._group = asyncio.TaskGroup()
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start what the spec describes. Raises the EngineError that keeps it from starting."""
        opened = asyncio.Event()
        self._running = asyncio.create_task(self._run(opened), name="fleet")
        await opened.wait()
        await self._cluster.open()
        posts = [self.post(i, r) for i, worker in enumerate(self._spec.workers) for r in range(worker.replicas)]
        try:
            async with asyncio.timeout(self._spec.start_s), asyncio.TaskGroup() as starting:
                for post in posts:
                    starting.create_task(self.begin(post), name=f"start:{post.name}")
                for worker in self._spec.workers:
                    for stage in worker.stages if not worker.replicas else ():
                        starting.create_task(self._hosted[stage].wait(), name=f"await:{stage}")
        except TimeoutError:
            raise StageUnavailable(f"the workers were not ready after {self._spec.start_s:g} s") from None
        except BaseExceptionGroup as group:
            error = plain(group)
            if isinstance(error, EngineError):
                raise error from None
            raise EngineError(f"a worker could not be started: {error!r}") from error
        self._check_line()

    async def close(self) -> None:
        """Stop every worker, however the others take it. May be called twice."""
        self._cluster.close()
        for pool in self.pools.values():
            pool.close()
        if self._running is not None:
            self._running.cancel()
            try:
                await asyncio.wait([self._running])
            except asyncio.CancelledError:
                for task in self._tasks:  # who waits for a worker's end waits no more
                    task.cancel()
                await asyncio.wait([self._running])
                raise

    def replicas(self) -> list[ReplicaInfo]:
        """Every replica of every stage, in the order of the stages."""
        pools = sorted(self.pools.values(), key=lambda pool: pool.info.order)
        return [self._info(pool, member) for pool in pools for member in pool.members()]

    async def _run(self, opened: asyncio.Event) -> None:
        """Holds every task of the fleet; to cancel it is to stop all workers."""
        async with self._group:
            opened.set()
            await self._watch()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something as a task of the fleet, which ends when the fleet does. It must not fail."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def post(self, host: int, replica: int) -> Post:
        """A new, empty place for a replica of an entry of ``workers:``."""
        spec = self._spec.workers[host]
        post = Post(f"worker{host}.{replica}", spec, spec.device(replica), self._launcher, host, replica)
        self.posts[post.name] = post
        return post

    async def begin(self, post: Post) -> None:
        """Fill a post for the first time. Raises the EngineError that keeps its worker from starting."""
        await self.launch(post)
        self.spawn(self._keep(post), f"keep:{post.name}")

    async def launch(self, post: Post) -> None:
        """Start a worker for a post; it takes over from whoever was there."""
        worker = RemoteWorker(self._membership.issue(post.name))
        whole = self._spec
        task = wire.Task(
            worker.id, whole.model, whole.weights, post.spec, post.device, whole.chunks,
            whole.heartbeat.interval_s, dict(whole.options),
        )  # fmt: skip
        try:
            await post.launcher.start(task, worker)
            self._join(post, worker, await worker.hello)
        except BaseException:
            await post.launcher.stop(worker)
            raise

    def _join(self, post: Post, worker: RemoteWorker, hello: wire.Hello) -> None:
        if not worker.alive:
            raise ReplicaLost(f"the worker {worker.id} ended as soon as it was ready")
        self.model, self._line = hello.model, hello.line
        post.worker = worker
        for info in hello.stages:
            pool = self.pools.get(info.name)
            if pool is None:
                pool = self.pools[info.name] = StagePool(info, self._spec.balance, self._spec.queue, self._spec.empty_s)
            replica = StageReplica(f"{info.name}@{worker.id}", info.name, worker)
            pool.join(replica)
            self._hosted[info.name].set()
            worker.on_lost.append(lambda pool=pool, replica=replica: pool.leave(replica.id))
        worker.on_lost.append(lambda: self._membership.leave(worker.id))
        worker.on_beat = lambda beat: self._beat(post, worker, beat)
        worker.on_leave = lambda: self.spawn(self.retire(worker), f"retire:{worker.id}")
        self._membership.join(worker.id, worker.waited_s())
        self._joined.set()

    def _beat(self, post: Post, worker: RemoteWorker, beat: wire.Beat) -> None:
        if self._membership.beat(worker.id, beat, worker.waited_s()) is not None:
            behind_s = self._loop.time() - beat.at_s if beat.at_s is not None else 0.0
            worker.behind_s = behind_s if abs(behind_s) > SAME_CLOCK_S else 0.0
            for stage in beat.queues:
                if stage in self.pools:
                    load = beat.queues[stage], beat.step_s.get(stage, 0.0)
                    self.pools[stage].report(f"{stage}@{worker.id}", *load)

    async def _watch(self) -> None:
        """Let go who is silent or stuck."""
        while True:
            due_s = self._membership.due_s
            self._joined.clear()
            try:
                async with asyncio.timeout_at(due_s if self._membership else None):
                    await self._joined.wait()
            except TimeoutError:
                for _ in range(UNREAD):
                    await asyncio.sleep(0)
                for loss in self._membership.look(self._waited_s):
                    self._give_up(loss.worker, loss.why)

    def _waited_s(self, id: str) -> float:
        found = (post.worker for post in self.posts.values() if post.worker is not None and post.worker.id == id)
        return next((worker.waited_s() for worker in found), 0.0)

    def _give_up(self, id: str, why: str) -> None:
        for post in self.posts.values():
            if post.worker is not None and post.worker.id == id:
                log.warning("the worker %s is given up: %s", id, why)
                post.worker.hung = True
                post.worker.fence()

    async def _keep(self, post: Post) -> None:
        """See to it that a post has a worker, for as long as it is wanted."""
        try:
            while post.wanted:
                if worker := post.worker:
                    await self._outlive(post, worker)
                else:
                    await self._bring_back(post)
        finally:
            if post.worker is not None:
                await post.launcher.stop(post.worker)

    async def _outlive(self, post: Post, worker: RemoteWorker) -> None:
        """Wait for the end of a worker, and clear away what is left of it."""
        try:
            await worker.gone.wait()
        finally:
            await post.launcher.stop(worker)
        if post.worker is worker:  # or a successor has taken over
            post.worker = None
            if not worker.retired:
                self._membership.lost(post.name)
                log.warning("the worker %s was lost", worker.id)

    async def _bring_back(self, post: Post) -> None:
        await asyncio.sleep(self._membership.penalty_s(post.name, self._lonely(post)))
        async with post.filling:
            if post.worker is not None or not post.wanted:
                return
            try:
                async with asyncio.timeout(self._spec.start_s):
                    await self.launch(post)
            except (EngineError, OSError, TimeoutError) as error:
                self._membership.lost(post.name)
                log.warning("the worker %s does not come back: %s", post.name, error)
            else:
                log.warning("the worker %s is back", post.name)

    async def _take_in(self, guest: Guest) -> None:
        """Have a worker that came by itself for as long as it stays."""
        try:
            post = self._guests.post(guest)
        except EngineError as error:
            log.warning("a worker is refused: %s", error)
            guest.refuse(error.code, str(error))
            return
        if (before := self.posts.get(post.name)) and before.worker:
            before.worker.fence()  # it would not be here if it was still there
        self.posts[post.name] = post
        try:
            await self._host(post)
        finally:
            guest.drop()
            if self.posts.get(post.name) is post:
                del self.posts[post.name]

    async def _host(self, post: Post) -> None:
        try:
            await asyncio.sleep(self._membership.penalty_s(post.name, self._lonely(post)))
            async with asyncio.timeout(self._spec.start_s):
                await self.launch(post)
        except (EngineError, TimeoutError) as error:
            self._membership.lost(post.name)
            log.warning("the worker %s does not join: %s", post.name, error)
            return
        if post.worker is not None:
            log.info("the worker %s has joined", post.worker.id)
            await self._outlive(post, post.worker)

    def _lonely(self, post: Post) -> bool:
        return any(not len(self.pools[stage]) for stage in post.spec.stages if stage in self.pools)

    async def retire(self, worker: RemoteWorker) -> None:
        """Give a worker nothing more, let it end what it has for ``drain_s`` at most, and have it go."""
        held = [
            (pool, member.replica.id)
            for pool in self.pools.values() for member in pool.members() if member.replica.host is worker
        ]  # fmt: skip
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

    def _check_line(self) -> None:
        hosted = {stage for worker in self._spec.workers for stage in worker.stages}
        missing = [stage for stage in self._line if stage not in hosted]
        if missing:
            raise ConfigError(f"workers: none hosts {' and '.join(missing)}, of which {self._spec.model} has need")

    def _info(self, pool: Pool, member: Member[StageReplica]) -> ReplicaInfo:
        id = member.replica.worker
        name, _, number = id.rpartition("#")
        life = self._membership.life(id)
        return ReplicaInfo(
            stage=pool.info.name, replica=name, incarnation=int(number),
            state="draining" if member.draining else "up", leased=len(member.leases), slots=member.slots,
            queue=member.queue, step_ms=member.step_s * 1000,
            age_s=self._loop.time() - life.joined_s if life else 0.0,
            remembered=life.remembered.get(pool.info.name) if life else None,
        )  # fmt: skip
