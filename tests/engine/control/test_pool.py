"""Leases: in order, never more than there are slots, and none outlives its replica."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from engine.control.balance import POLICIES, Member, policy
from engine.control.pool import BOUND_S, SESSIONS, StagePool
from engine.core import StageInfo
from engine.errors import ConfigError, EngineError, Overloaded, Preempted, ReplicaLost, StageUnavailable
from tests.engine.fakes import turns


@dataclass(frozen=True)
class Fake:
    id: str
    worker: str = "w"


def made(
    *replicas: Fake, slots: int = 1, balance: str = "least_queue", queue: int = 64, empty_s: float = 0.0
) -> StagePool[Fake]:
    pool: StagePool[Fake] = StagePool(StageInfo(name="s", order=0, slots=slots), balance, queue, empty_s)
    for replica in replicas:
        pool.join(replica)
    return pool


async def chosen_by(pool: StagePool[Fake]) -> Counter[str]:
    """Who gets 200 leases that are taken one after the other."""
    chosen: Counter[str] = Counter()
    for _ in range(200):
        async with pool.lease() as replica:
            chosen[replica.id] += 1
    return chosen


class Guest:
    """Somebody who takes a lease and keeps it until told to go."""

    def __init__(self, pool: StagePool[Fake], log: list[object], name: object = None, owner: str = "") -> None:
        self.pool, self.log, self.name, self.owner = pool, log, name, owner
        self.go = asyncio.Event()
        self.task = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        async with self.pool.lease(owner=self.owner):
            self.log.append(self.name)
            await self.go.wait()


async def ended(*guests: Guest) -> list[BaseException | None]:
    for guest in guests:
        guest.go.set()
    return await asyncio.gather(*(guest.task for guest in guests), return_exceptions=True)


@pytest.mark.seed("A3.3")
async def test_waiters_are_served_in_order_of_arrival() -> None:
    """All come in one turn: the first has the slot before the second looks for one."""
    log: list[object] = []
    pool = made(Fake("a"))
    guests = [Guest(pool, log, i) for i in range(5)]
    await turns()
    assert (pool.leased, pool.waiting) == (1, 4)
    await ended(*guests)
    assert log == list(range(5))
    assert (pool.leased, pool.waiting) == (0, 0)


async def test_the_next_slot_is_the_owners_who_has_fewest() -> None:
    log: list[object] = []
    pool = made(Fake("a"), slots=2)
    a = [Guest(pool, log, f"a{i}", "a") for i in range(4)]
    await turns()
    b = [Guest(pool, log, f"b{i}", "b") for i in range(2)]
    await turns()
    for gone in (a[0], a[1], b[0]):
        gone.go.set()
        await turns()
    assert log == ["a0", "a1", "b0", "a2", "b1"]
    await ended(*a, *b)
    assert not pool._queue._held


async def test_who_comes_before_those_in_line_takes_the_slot_that_one_of_them_was_called_for() -> None:
    log: list[object] = []
    pool = made(Fake("a"), slots=2)
    a = [Guest(pool, log, f"a{i}", "a") for i in range(3)]
    await turns()
    b = Guest(pool, log, "b", "b")
    a[0].go.set()  # b comes in the turn in which it goes
    await turns()
    assert log == ["a0", "a1", "b"]
    await ended(*a, b)
    assert log == ["a0", "a1", "b", "a2"]


async def test_a_full_line_has_room_for_those_who_have_fewer_in_it() -> None:
    log: list[object] = []
    pool = made(Fake("a"), queue=4)
    a = [Guest(pool, log, f"a{i}", "a") for i in range(5)]
    await turns()
    b = [Guest(pool, log, f"b{i}", "b") for i in range(2)]
    await turns()
    late = [Guest(pool, log, "late", owner) for owner in ("a", "b")]
    await turns()
    assert pool.waiting == 4
    results = await ended(*a, *b, *late)
    refused = [isinstance(result, Overloaded) for result in results]
    assert refused == [False, False, False, True, True, False, False, True, True]
    assert log == ["a0", "a1", "b0", "a2", "b1"], "with as many slots they take turns"


async def test_nobody_of_a_crowd_of_several_owners_is_left_waiting() -> None:
    """They come, give up and go in any order, while replicas come and go."""
    rng, log = random.Random(11), list[object]()
    pool = made(Fake("r0"), slots=2, queue=20, empty_s=30.0)
    guests = list[Guest]()
    for i in range(400):
        guests.append(Guest(pool, log, i, rng.choice("abc")))
        if rng.random() < 0.3:
            rng.choice(guests).task.cancel()
        if rng.random() < 0.5:
            rng.choice(guests).go.set()
        if rng.random() < 0.05:
            pool.leave(next(iter(pool.members())).replica.id)
            pool.join(Fake(f"r{i + 1}"))
        await turns(rng.randrange(4))
        if rng.random() < 0.1:
            await turns()
            assert not pool.waiting or not any(member.free() for member in pool.members())
    await ended(*guests)
    assert (pool.leased, pool.waiting) == (0, 0)
    assert not pool._queue._held


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
    pool = made(Fake("a"), slots=4, empty_s=10.0)
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


@pytest.mark.seed("A3.1", "A1.12", "A3.13")
async def test_the_choice_goes_by_the_requests_worker_then_the_session_then_the_policy() -> None:
    pool = made(*(Fake(name, f"w-{name}") for name in "abcd"), slots=4, balance="round_robin")
    async with pool.lease(session="one") as first:
        pass
    for _ in range(5):
        async with pool.lease(session="one") as again:
            assert again == first, "where its session was"
    other = next(name for name in "abcd" if name != first.id)
    async with pool.lease(f"w-{other}", "one") as near:
        assert near.id == other, "where the request is already"
    async with pool.lease(session="one") as moved:
        assert moved.id == other
    pool.leave(other)
    async with pool.lease(session="one") as elsewhere:
        assert elsewhere.id != other


@pytest.mark.seed("A3.10")
async def test_bindings_are_bounded() -> None:
    pool = made(Fake("a"), slots=4)
    for i in range(SESSIONS + 100):
        async with pool.lease(session=str(i)):
            pass
    assert len(pool._sessions) == SESSIONS  # pyright: ignore[reportPrivateUsage]


async def test_a_session_is_bound_for_ten_minutes_after_its_last_request() -> None:
    """And it is counted no longer: an hour of sessions that come one after the other leaves those of ten minutes."""
    time_s = [0.0]
    pool: StagePool[Fake] = StagePool(StageInfo(name="s", order=0, slots=8), "round_robin", now=lambda: time_s[0])
    pool.join(Fake("a"))
    pool.join(Fake("b"))

    async def asked(session: str) -> str:
        async with pool.lease(session=session) as replica:
            return replica.id

    first = await asked("one")
    for _ in range(3):
        time_s[0] += BOUND_S - 1
        assert await asked("one") == first
    time_s[0] += BOUND_S
    assert await asked("one") != first, "the next one's turn"
    for i in range(200):
        time_s[0] += BOUND_S / 100
        await asked(f"other {i}")
    assert len(pool._sessions) <= 101  # pyright: ignore[reportPrivateUsage]


async def test_a_session_does_not_stay_with_a_replica_that_became_slow() -> None:
    pool = made(Fake("a"), Fake("b"), slots=8)
    async with pool.lease(session="one") as first:
        pass
    other = "b" if first.id == "a" else "a"
    pool.report(first.id, queue=0, step_s=0.1)
    pool.report(other, queue=0, step_s=0.01)
    async with pool.lease(session="one") as second:
        assert second.id == other


@pytest.mark.seed("A1.10")
async def test_least_queue_counts_what_heartbeats_report_and_draws_ties() -> None:
    pool = made(Fake("a"), Fake("b"), Fake("c"), slots=8)
    async with AsyncExitStack() as held:
        for _ in range(9):
            await held.enter_async_context(pool.lease())
        pool.report("c", queue=3, step_s=0.01)
        pool.report("nobody", queue=3, step_s=0.01)
        chosen = await chosen_by(pool)
    assert set(chosen) == {"a", "b"}
    assert min(chosen.values()) > 50


async def test_what_waited_at_the_last_heartbeat_and_is_over_counts_no_more() -> None:
    pool = made(Fake("a"), Fake("b"), slots=8)
    async with AsyncExitStack() as held:
        for _ in range(8):
            await held.enter_async_context(pool.lease())
        pool.report("a", queue=4, step_s=0.01)
    async with AsyncExitStack() as held:
        chosen = Counter([(await held.enter_async_context(pool.lease())).id for _ in range(8)])
    assert chosen == {"a": 4, "b": 4}


async def test_what_is_preemptible_gives_way_to_who_waits_the_oldest_first() -> None:
    pool, log = made(Fake("a"), slots=2), list[str]()

    async def hold(name: str, preemptible: Callable[[], bool]) -> None:
        try:
            async with pool.lease(preemptible=preemptible):
                await asyncio.Event().wait()
        except Preempted:
            log.append(name)

    claimed: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        held = [tasks.create_task(hold(name, lambda name=name: name not in claimed)) for name in ("first", "second")]
        await turns()
        with pytest.raises(Preempted, match="no slot"):
            await pool.lease(preemptible=lambda: True).__aenter__()
        claimed.append("first")  # somebody waits for its answer by now
        async with pool.lease():
            assert log == ["second"]
            waiting = Guest(pool, [])
            await turns()
            assert not held[0].done(), "what was claimed keeps its slot"
            assert pool.waiting == 1
        await ended(waiting)
        held[0].cancel()
    assert pool.leased == 0


async def test_a_replica_that_leaves_as_one_of_its_leases_is_taken_away_leaves() -> None:
    """Both in the turn of the loop in which the lease ends: nobody behind it is forgotten."""
    pool, log = made(Fake("a"), slots=2), list[str]()

    async def hold(preemptible: bool) -> None:
        try:
            async with pool.lease(preemptible=lambda: preemptible):
                await asyncio.Event().wait()
        except EngineError as error:
            log.append(type(error).__name__)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold(True))
        tasks.create_task(hold(False))
        await turns()
        scope = next(iter(pool._preemptible))
        pool._preempt()
        while not scope.expired():  # noqa: ASYNC110 - the very turn
            await asyncio.sleep(0)
        pool.leave("a")
    assert log == ["ReplicaLost"] * 2
    assert pool.leased == 0


async def test_what_leaves_is_not_preempted() -> None:
    pool = made(Fake("a"), Fake("b"), slots=1)
    async with AsyncExitStack() as held:
        await held.enter_async_context(pool.lease("b"))

        async def hold() -> None:
            with pytest.raises(ReplicaLost):
                async with pool.lease("a", preemptible=lambda: True):
                    await asyncio.Event().wait()

        holding = asyncio.create_task(hold())
        await turns()
        (scope,) = pool._preemptible
        (name,) = [name for name, member in pool._members.items() if scope in member.leases]
        pool.leave(name)
        assert pool._preemptible == {}
        pool._preempt()
        await holding


async def test_small_differences_in_speed_are_noise() -> None:
    pool = made(Fake("a"), Fake("b"), slots=8)
    pool.report("a", queue=0, step_s=0.010)
    pool.report("b", queue=0, step_s=0.012)
    chosen = await chosen_by(pool)
    assert min(chosen.values()) > 50


@pytest.mark.seed("A1.10", "A1.19")
async def test_a_policy_of_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'fastest' is not one of least_queue, round_robin, random"):
        made(Fake("a"), balance="fastest")


@pytest.mark.seed("A1.10")
@pytest.mark.parametrize("balance", POLICIES)
def test_a_policy_refuses_to_choose_among_none_and_by_a_queue_that_cannot_be(balance: str) -> None:
    choose = policy(balance)
    with pytest.raises(ValueError, match="no replica to choose from"):
        choose([])
    members = [Member(Fake("a"), 1), Member(Fake("b"), 1, queue=-1)]
    with pytest.raises(ValueError, match="queue is below 0"):
        choose(members)
    assert choose(members[:1]) is members[0]


@pytest.mark.seed("A1.13")
async def test_an_empty_pool_is_waited_for_and_not_for_ever() -> None:
    pool = made(empty_s=0.05)
    with pytest.raises(StageUnavailable, match="no replica of s is up"):
        await pool.lease().__aenter__()
    log: list[object] = []
    pool = made(empty_s=10.0)
    guest = Guest(pool, log)
    await turns()
    pool.join(Fake("a"))
    assert await ended(guest) == [None]


@pytest.mark.seed("A1.13")
async def test_a_pool_whose_last_replica_drains_is_waited_for_as_if_it_was_empty() -> None:
    """Who stood in line before is served by nobody either."""
    pool = made(Fake("a"))
    served, waiting = Guest(pool, []), Guest(pool, [])
    await turns()
    pool.drain("a")
    done, _ = await asyncio.wait([waiting.task], timeout=1)
    assert [type(task.exception()) for task in done] == [StageUnavailable]
    done, _ = await asyncio.wait([asyncio.create_task(pool.lease().__aenter__())], timeout=1)
    assert [type(task.exception()) for task in done] == [StageUnavailable]
    assert await ended(served) == [None], "what it has goes on"


@pytest.mark.seed("A1.13")
async def test_the_patience_with_a_pool_without_replicas_begins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not anew with each request that the draining one ends, nor when it leaves, nor with each who gives up."""
    pool = made(Fake("a"), slots=3, empty_s=10.0)
    guests = [Guest(pool, []) for _ in range(5)]
    await turns()
    begun: list[float | None] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda delay: begun.append(delay) or timeout(delay))
    pool.drain("a")
    await turns()
    assert begun == [10.0, 10.0]
    await ended(guests[0])
    guests[4].task.cancel()
    await turns()
    pool.drain("a")
    pool.leave("a")
    await turns()
    assert begun == [10.0, 10.0]
    pool.join(Fake("b"))
    assert [type(error) for error in await ended(*guests[1:4])] == [ReplicaLost, ReplicaLost, type(None)]


@pytest.mark.seed("A1.13")
async def test_a_closed_pool_is_not_waited_for() -> None:
    pool = made(empty_s=10.0)
    guest = Guest(pool, [])
    await turns()
    pool.close()
    assert isinstance((await ended(guest))[0], StageUnavailable)


@pytest.mark.seed("A1.20")
async def test_who_drains_a_replica_learns_when_it_is_empty() -> None:
    pool = made(Fake("a"), slots=2)
    guest = Guest(pool, [])
    await turns()
    pool.drain("a")
    emptied = asyncio.create_task(pool.emptied("a"))
    await turns()
    assert not emptied.done()
    await ended(guest)
    await asyncio.wait_for(emptied, 20)
    await pool.emptied("nobody")


@pytest.mark.seed("A1.20")
async def test_a_draining_replica_is_never_chosen_beside_a_live_one() -> None:
    """Not by the policy, not for its worker, and not for the session that it had last."""
    for balance in ("least_queue", "round_robin", "random"):
        pool = made(Fake("a", "w-a"), Fake("b", "w-b"), slots=2, balance=balance)
        async with pool.lease("w-a", "one") as first:
            assert first.id == "a"
        pool.drain("a")
        assert set(await chosen_by(pool)) == {"b"}
        async with pool.lease("w-a") as near, pool.lease(session="one") as again:
            assert (near.id, again.id) == ("b", "b")
        assert not pool.has_room_on("w-a")
        assert pool.slots == 2
        likely = pool.likely("one")
        assert likely is not None
        assert likely.id == "b"


@pytest.mark.seed("A1.11")
async def test_round_robin_passes_over_a_replica_that_is_full() -> None:
    pool = made(Fake("a", "w-a"), Fake("b", "w-b"), Fake("c", "w-c"), slots=2, balance="round_robin")
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(pool.lease("w-a"))
        taken = Counter([(await held.enter_async_context(pool.lease())).id for _ in range(4)])
    assert taken == {"b": 2, "c": 2}


@pytest.mark.seed("A1.11")
async def test_every_pool_has_a_turn_of_its_own() -> None:
    """Requests pass the pools in turn: with one turn for both, each would have half of its replicas idle."""
    pools = [made(Fake("a"), Fake("b"), balance="round_robin") for _ in range(2)]
    taken: list[Counter[str]] = [Counter(), Counter()]
    for _ in range(10):
        for pool, counts in zip(pools, taken, strict=True):
            async with pool.lease() as replica:
                counts[replica.id] += 1
    assert taken == [{"a": 5, "b": 5}] * 2


@pytest.mark.seed("A3.3", "A1.15")
async def test_to_choose_and_to_register_is_one_step() -> None:
    pool = made(Fake("a"), Fake("b"), slots=50)
    taken: list[str] = []

    async def take() -> None:
        async with pool.lease() as replica:
            assert replica.id in {m.replica.id for m in pool.members() if m.leases}
            taken.append(replica.id)
            await turns(3)

    await asyncio.gather(*(take() for _ in range(100)))
    assert Counter(taken) == {"a": 50, "b": 50}


@pytest.mark.seed("A3.14", "A1.11")
@pytest.mark.parametrize("replicas", [2, 3, 5])
async def test_round_robin_is_within_one_also_for_requests_at_once(replicas: int) -> None:
    pool = made(*(Fake(str(i)) for i in range(replicas)), slots=1000, balance="round_robin")
    taken: Counter[str] = Counter()

    async def take(i: int) -> None:
        await turns(i % 3)
        async with pool.lease(session=str(i)) as replica:
            taken[replica.id] += 1
            await turns(5)

    for count in (1, 7, 60):
        taken.clear()
        await asyncio.gather(*(take(i) for i in range(count)))
        assert max(taken.values()) - min(taken.get(str(i), 0) for i in range(replicas)) <= 1


@pytest.mark.seed("A1.1")
def test_the_list_of_members_is_a_snapshot() -> None:
    pool = made(Fake("a"), Fake("b"))
    before = pool.members()
    pool.join(Fake("c"))
    assert [member.replica.id for member in before] == ["a", "b"]
    assert [member.replica.id for member in pool.members()] == ["a", "b", "c"]


@pytest.mark.seed("A1.14", "A3.8")
async def test_only_who_is_on_a_replica_that_is_lost_learns_of_it() -> None:
    pool, log = made(Fake("a"), Fake("b"), slots=2, balance="round_robin"), list[object]()
    guests = [Guest(pool, log, i) for i in range(4)]
    await turns()
    pool.leave("a")
    await turns()
    assert [guest.task.done() for guest in guests] == [True, False, True, False]
    lost = [str(guest.task.exception()) for guest in guests if guest.task.done()]
    assert lost == ["the s replica a was lost"] * 2, "stage and replica are named"
    assert await ended(*guests[1::2]) == [None, None]


@pytest.mark.seed("A1.9", "A3.7")
async def test_however_many_come_and_go_at_once_the_last_word_counts() -> None:
    rng, log = random.Random(3), list[object]()
    pool = made(slots=2, empty_s=10.0)
    guests = [Guest(pool, log) for _ in range(4)]
    here: set[str] = set()
    for i in range(300):
        name = f"{rng.choice('abc')}{i}"
        pool.join(Fake(name))
        here.add(name)
        for gone in rng.sample(sorted(here), rng.randrange(len(here) + 1)):
            pool.leave(gone)
            here.discard(gone)
        if i % 50 == 0:
            await turns(3)  # some come upon a replica that goes, others wait for one
    assert {member.replica.id for member in pool.members()} == here
    for name in here:
        pool.leave(name)
    waiting = Guest(pool, log)
    await turns()
    assert pool.waiting == 1
    pool.join(Fake("last"))
    await turns()
    assert (pool.leased, pool.waiting) == (1, 0), "who waits learns of the one that came last"
    assert await ended(waiting) == [None]
    await ended(*guests)
    assert (pool.leased, pool.waiting) == (0, 0)


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
