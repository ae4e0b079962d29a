"""Leases: in order, never more than there are slots, and none outlives its replica."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from engine.control.pool import StagePool
from engine.core import StageInfo
from engine.errors import Overloaded, ReplicaLost, StageUnavailable
from tests.engine.fakes import turns


@dataclass(frozen=True)
class Fake:
    id: str
    worker: str = "w"


def made(*replicas: Fake, slots: int = 1, balance: str = "least_queue", queue: int = 64) -> StagePool[Fake]:
    pool: StagePool[Fake] = StagePool(StageInfo(name="s", order=0, slots=slots), balance, queue)
    for replica in replicas:
        pool.join(replica)
    return pool


class Guest:
    """Somebody who takes a lease and keeps it until told to go."""

    def __init__(self, pool: StagePool[Fake], log: list[object], name: object = None) -> None:
        self.pool, self.log, self.name = pool, log, name
        self.go = asyncio.Event()
        self.task = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        async with self.pool.lease():
            self.log.append(self.name)
            await self.go.wait()


async def ended(*guests: Guest) -> list[BaseException | None]:
    for guest in guests:
        guest.go.set()
    return await asyncio.gather(*(guest.task for guest in guests), return_exceptions=True)


async def test_waiters_are_served_in_order_of_arrival() -> None:
    log: list[object] = []
    pool = made(Fake("a"))
    guests = [Guest(pool, log, i) for i in range(5)]
    await turns()
    assert (pool.leased, pool.waiting) == (1, 4)
    await ended(*guests)
    assert log == list(range(5))
    assert (pool.leased, pool.waiting) == (0, 0)


async def test_a_cancelled_waiter_passes_its_turn() -> None:
    log: list[object] = []
    pool = made(Fake("a"))
    first, second, third = (Guest(pool, log, i) for i in range(3))
    await turns()
    first.go.set()
    await turns(1)
    second.task.cancel()  # its turn has come, and it has not run yet
    await turns()
    assert log == [0, 2]
    await ended(first, third)


async def test_order_survives_the_last_replica_leaving_and_another_joining() -> None:
    log: list[object] = []
    pool = made(Fake("a"))
    guests = [Guest(pool, log, i) for i in range(5)]
    await turns()
    pool.leave("a")
    pool.join(Fake("b"))
    results = await ended(*guests)
    assert log == list(range(5))
    assert isinstance(results[0], ReplicaLost)
    assert results[1:] == [None] * 4


async def test_leaving_ends_every_lease_and_every_wait() -> None:
    log: list[object] = []
    pool = made(Fake("a"), slots=2)
    guests = [Guest(pool, log) for _ in range(4)]
    await turns()
    pool.leave("a")
    pool.leave("a")
    done, _ = await asyncio.wait([guest.task for guest in guests], timeout=1)
    kinds = Counter(type(task.exception()) for task in done)
    assert kinds == {ReplicaLost: 2, StageUnavailable: 2}
    assert (len(pool), pool.leased, pool.waiting) == (0, 0, 0)
    with pytest.raises(StageUnavailable):
        await pool.lease().__aenter__()


async def test_several_leases_of_one_task_end_in_one_error() -> None:
    pools = [made(Fake("a")), made(Fake("a")), made(Fake("a"))]

    async def hold() -> None:
        async with pools[0].lease(), pools[1].lease(), pools[2].lease():
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await turns()
    for pool in pools:
        pool.leave("a")
    await asyncio.wait([task], timeout=1)
    assert isinstance(task.exception(), ReplicaLost)


async def test_a_timeout_of_the_guest_is_his_own() -> None:
    pool = made(Fake("a"))
    with pytest.raises(TimeoutError):
        async with pool.lease():
            raise TimeoutError
    assert pool.leased == 0


async def test_draining_takes_no_more_and_lets_the_rest_end() -> None:
    log: list[object] = []
    pool = made(Fake("a"), slots=4)
    guest = Guest(pool, log)
    await turns()
    pool.drain("a")
    pool.drain("nobody")
    late = Guest(pool, log)
    await turns()
    assert (pool.leased, pool.waiting) == (1, 1)
    assert await ended(guest) == [None]
    pool.join(Fake("b"))
    assert await ended(late) == [None]


async def test_more_than_the_queue_takes_are_refused_at_once() -> None:
    log: list[object] = []
    pool = made(Fake("a"), queue=2)
    guests = [Guest(pool, log) for _ in range(5)]
    await turns()
    assert [type(guest.task.exception()) for guest in guests if guest.task.done()] == [Overloaded] * 2
    await ended(*guests)


async def test_a_lease_prefers_the_worker_it_is_asked_to() -> None:
    pool = made(Fake("a", "w1"), Fake("b", "w2"), slots=2)
    assert pool.has_room_on("w2")
    async with pool.lease("w2") as one, pool.lease("w2") as two:
        assert (one.id, two.id) == ("b", "b")
        assert not pool.has_room_on("w2")
        async with pool.lease("w2") as three:
            assert three.id == "a"
    assert not pool.has_room_on("nowhere")


@pytest.mark.parametrize(("balance", "spread"), [("least_queue", 0), ("round_robin", 0), ("random", 12)])
async def test_policies_spread_the_requests(balance: str, spread: int) -> None:
    random.seed(1)
    pool = made(*(Fake(name) for name in "abc"), slots=100, balance=balance)
    leases = [pool.lease() for _ in range(30)]
    counts = Counter([(await lease.__aenter__()).id for lease in leases])
    assert max(counts.values()) - min(counts.values()) <= spread
    for lease in leases:
        await lease.__aexit__(None, None, None)
    assert pool.leased == 0


async def test_never_more_leases_than_slots_whatever_happens() -> None:
    rng = random.Random(7)
    pool, log = made(Fake("a"), Fake("b"), slots=2), list[object]()
    guests: list[Guest] = []
    for _ in range(300):
        guests.append(Guest(pool, log))
        guest = rng.choice(guests)
        if rng.random() < 0.5:
            guest.go.set()
        elif rng.random() < 0.5:
            guest.task.cancel()
        await turns(rng.randrange(3))
        assert pool.leased <= 4
    await ended(*guests)
    assert (pool.leased, pool.waiting) == (0, 0)
