"""The loop's time: clients with much to do work one at a time, and who has little to do does not wait for them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby
from typing import Any

import pytest

from app.limits import fair_scheduler
from app.limits.fair_scheduler import AT_ONCE_S, SLICE_S, FairScheduler, LoopTimeBudget, metered
from app.limits.rate_limiter import RateLimiter
from app.transports.intake import Intake
from tests.app.rig import eventually


class Clock:
    """Goes on with the work that is done, and else stands still."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(fair_scheduler, "EVERY_S", 0.0)  # the loop's own timers do not know this clock
    return Clock()


async def _work(
    loop_time: LoopTimeBudget, clock: Clock, name: str, done: list[str], pieces: int, piece_s: float
) -> None:
    for _ in range(pieces):
        loop_time.begin()
        clock.now_s += piece_s
        done.append(name)
        await loop_time.pause()


async def test_a_slice_is_all_that_is_done_before_others_have_their_turn(clock: Clock) -> None:
    one, done, piece_s = FairScheduler(clock, clock), list[str](), 0.0001
    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(_work(LoopTimeBudget(one), clock, name, done, 200, piece_s))
    turns = [len(list(turn)) for _, turn in groupby(done)]
    assert max(turns[:20]) <= 2 * (SLICE_S / piece_s + 1)


async def test_who_does_little_never_waits(clock: Clock) -> None:
    one, done = FairScheduler(clock, clock), list[str]()
    loop_time = LoopTimeBudget(one)
    for _ in range(1000):
        clock.now_s += 0.020
        loop_time.begin()
        clock.now_s += 0.0004  # twice what 20 ms of speech take
        loop_time.count()
        assert not loop_time.used_up
    assert done == []


async def test_who_had_least_is_next(clock: Clock) -> None:
    """Fifty flood; a user whose one command took long is asked to wait, and goes before all of them."""
    one, done = FairScheduler(clock, clock), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(_work(LoopTimeBudget(one), clock, "flood", done, 300, 0.0002))
        await eventually(lambda: len(done) > 5000)
        before = len(done)
        await tasks.create_task(_work(LoopTimeBudget(one), clock, "user", done, 2, AT_ONCE_S * 1.5))
        assert len(done) - before <= 4 * SLICE_S / 0.0002


async def test_of_two_who_have_more_than_their_part_each_has_its_turn(clock: Clock) -> None:
    """Whatever one of them asks for beside: the other asks for nothing, and works."""
    one, done = FairScheduler(clock, clock), list[str]()
    pace = RateLimiter(messages_s=400.0, bytes_s=1e9)
    user, flood = LoopTimeBudget(one, pace=pace), LoopTimeBudget(one)

    async def ask() -> None:
        for _ in range(20):
            pace.spend(1, 0, clock())
            await _work(user, clock, "user", done, 1, SLICE_S)

    asking = asyncio.create_task(ask())
    flooding = asyncio.create_task(_work(flood, clock, "flood", done, 2000, SLICE_S / 4))
    await asyncio.wait([asking, flooding])
    last = len(done) - done[::-1].index("user")
    between = [len(list(turn)) for name, turn in groupby(done[:last]) if name == "flood"]
    assert 0 < max(between) <= 2 * 4 + 1


async def test_one_who_leaves_the_line_holds_nobody_up(clock: Clock) -> None:
    one, done = FairScheduler(clock, clock), list[str]()
    gone = asyncio.create_task(_work(LoopTimeBudget(one), clock, "gone", done, 10, 1.0))
    await asyncio.sleep(0)
    gone.cancel()
    await _work(LoopTimeBudget(one), clock, "there", done, 3, 1.0)
    assert done.count("there") == 3


async def test_one_whose_work_fails_holds_nobody_up(clock: Clock) -> None:
    one, granted = FairScheduler(clock, clock), asyncio.Event()
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    one.join(lambda: 1 / 0, 0.0, False, 0.0)  # pyright: ignore[reportArgumentType]
    one.join(granted.set, 0.0, False, 0.0)
    async with asyncio.timeout(5):
        await granted.wait()
    assert len(failed) == 1


async def test_between_two_slices_is_time_for_others() -> None:
    """Half of the loop's time: by the loop's own clock, since that is what it is for."""
    one, granted = FairScheduler(), list[float]()
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def go() -> None:
        granted.append(loop.time())
        one.work(SLICE_S)
        if len(granted) == 10:
            over.set()
        else:
            one.join(go, 0.0, False, 0.0)

    one.join(go, 0.0, False, 0.0)
    await over.wait()
    assert granted[-1] - granted[0] > 9 * fair_scheduler.EVERY_S * 0.9


async def test_a_slice_that_is_hardly_used_is_soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand who come at once and ask for little are served in a moment, not each in a slice of their own."""
    clock, granted = Clock(), list[float]()
    timers = list[tuple[float, Callable[[], None]]]()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda wait_s, go: timers.append((wait_s, go)))
    one = FairScheduler(clock, clock)

    def go() -> None:
        granted.append(clock.now_s)
        clock.now_s += 0.0001
        one.work(0.0001)

    for _ in range(1000):
        one.join(go, 0.0, False, 0.0)
    while timers:
        wait_s, grant = timers.pop()
        clock.now_s += wait_s
        grant()
    assert len(granted) == 1000
    assert granted[-1] - granted[0] == pytest.approx(999 * 0.0002)


async def test_who_was_there_before_does_not_wait_behind_a_crowd_that_comes(clock: Clock) -> None:
    one, done = FairScheduler(clock, clock), list[str]()
    user = LoopTimeBudget(one, "203.0.113.7")
    clock.now_s += 60.0
    busy = LoopTimeBudget(one, "203.0.113.7")
    busy.begin()
    clock.now_s += 10.0  # of the address's time, all that there is
    busy.count()
    crowd = [LoopTimeBudget(one, "203.0.113.7") for _ in range(300)]
    for client, name in (*((new, "new") for new in crowd), (user, "user")):
        client.begin()
        assert client.used_up
        client.join(partial(done.append, name))
    await eventually(lambda: len(done) == 301)
    assert done[0] == "user"


async def test_who_has_just_come_waits_for_a_second_of_the_others_at_most(clock: Clock) -> None:
    one, done = FairScheduler(clock, clock), list[str]()
    others = [LoopTimeBudget(one) for _ in range(10)]
    clock.now_s += 60.0
    new = LoopTimeBudget(one)
    new.join(partial(done.append, "new"))
    for old in others:
        clock.now_s += fair_scheduler.NEW_S / 4
        old.join(partial(done.append, "old"))
    await eventually(lambda: len(done) == 11)
    assert done.index("new") == 3


async def test_a_connection_stands_in_line_once(clock: Clock) -> None:
    """Its parser and its session wait for the same slice, and are both called with it."""
    one, done = FairScheduler(clock, clock), list[str]()
    both, other = LoopTimeBudget(one), LoopTimeBudget(one)
    for loop_time, name in ((both, "parser"), (other, "other"), (both, "session")):
        loop_time.join(partial(done.append, name))
    await eventually(lambda: len(done) == 3)
    assert done == ["parser", "session", "other"]


async def test_who_keeps_their_pace_is_before_those_who_do_not(clock: Clock) -> None:
    """Their shares of the loop's time have refilled, all of them: what they ask for tells them apart."""
    one, done = FairScheduler(clock, clock), list[str]()
    clients = list[tuple[str, LoopTimeBudget]]()
    for name, messages in (("flood", 4000), ("lively", 30), ("user", 1)):
        pace = RateLimiter(messages_s=400.0, bytes_s=1e9)
        pace.spend(messages, 0, clock())
        clients.append((name, LoopTimeBudget(one, pace=pace)))
    for name, loop_time in clients:
        loop_time.join(partial(done.append, name))
    await eventually(lambda: len(done) == 3)
    assert done == ["user", "lively", "flood"]


async def test_who_has_just_said_something_is_before_a_crowd_of_newcomers(clock: Clock) -> None:
    """They are ahead by no more than that, and the newcomers by nothing."""
    one, done = FairScheduler(clock, clock), list[str]()
    pace = RateLimiter(messages_s=400.0, bytes_s=1e9)
    user = LoopTimeBudget(one, pace=pace)
    clock.now_s += 0.5
    for _ in range(20):
        LoopTimeBudget(one).join(partial(done.append, "new"))
    pace.spend(2, 0, clock())
    user.join(partial(done.append, "user"))
    await eventually(lambda: len(done) == 21)
    assert done[0] == "user"


async def test_who_is_ahead_of_their_pace_has_nothing_freely(clock: Clock) -> None:
    pace = RateLimiter(messages_s=400.0, bytes_s=1e9)
    loop_time = LoopTimeBudget(FairScheduler(clock, clock), pace=pace)
    pace.spend(400, 0, clock())
    assert not loop_time.used_up
    pace.spend(1, 0, clock())
    assert loop_time.used_up
    clock.now_s += 0.1
    assert not loop_time.used_up


@pytest.mark.parametrize("cost_s", [0.0004, 0.0008])
async def test_fifty_who_flood_hold_no_user_up(monkeypatch: pytest.MonkeyPatch, cost_s: float) -> None:
    """Twenty-two seconds of four who speak at the address of fifty who send all that is taken, by a clock that goes on
    with the work. What a user sends every 20 ms costs more than the loop has for each of them in equal parts, and on a
    slow machine more than one may have freely."""
    clock, waits_s = Clock(), list[float]()
    timers, order = list[tuple[float, int, Callable[[], None]]](), count()

    def call_later(wait_s: float, go: Callable[[], None]) -> asyncio.TimerHandle:
        heappush(timers, (clock.now_s + wait_s, next(order), go))
        return asyncio.TimerHandle(0, go, (), asyncio.get_running_loop())

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    one = FairScheduler(clock, clock)

    def intake(parse: Callable[[bytes], int], sent: int = 0) -> Intake:
        pace = RateLimiter(messages_s=400.0, bytes_s=1e9)
        pace.spend(sent, 0, clock())
        loop_time = LoopTimeBudget(one, "203.0.113.7", pace)
        return Intake(parse, lambda: True, lambda: None, lambda: None, pace, loop_time)

    def flood(_: bytes) -> int:
        clock.now_s += 0.0021
        return 40

    def hear(said: bytes) -> int:
        waits_s.append(clock.now_s - float(said))
        clock.now_s += cost_s
        return 1

    def speak(user: Intake, due_s: float) -> None:
        user.put(f"{due_s:1024.6f}".encode())
        call_later(due_s + 0.020 - clock.now_s, partial(speak, user, due_s + 0.020))

    for _ in range(50):
        intake(flood, sent=4000).put(bytes(1024 * 2000))
    for _ in range(4):
        speak(intake(hear), clock.now_s)
    while clock.now_s < 22.0:
        due_s, _, go = heappop(timers)
        clock.now_s = max(clock.now_s, due_s)
        go()
    assert len(waits_s) > 4390
    assert max(waits_s) < 0.015


async def test_what_takes_long_is_done_in_a_thread_one_at_a_time() -> None:
    one, under_way, most = FairScheduler(), 0, 0
    began, go_on = threading.Event(), threading.Event()

    def work(n: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        began.set()
        go_on.wait(10)
        under_way -= 1
        return n

    async with asyncio.TaskGroup() as tasks:
        done = [tasks.create_task(one.in_thread(partial(work, n))) for n in range(5)]
        await asyncio.to_thread(began.wait, 10)
        go_on.set()  # the loop went on meanwhile
    assert [task.result() for task in done] == list(range(5))
    assert most == 1


@pytest.mark.parametrize(
    ("size", "here"), [(100, True), (fair_scheduler.LONG_BYTES, True), (fair_scheduler.LONG_BYTES + 1, False)]
)
async def test_only_what_is_long_is_read_in_a_thread(size: int, here: bool) -> None:
    """To hand a packet of sound to a thread would cost more than to read it."""
    thread = await FairScheduler().read(threading.get_ident, size)
    assert (thread == threading.get_ident()) == here


async def test_the_work_of_one_who_left_holds_the_next_one_up() -> None:
    """Or as many threads would work at a time as clients come and go."""
    one, under_way = FairScheduler(), list[str]()
    began, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        under_way.append("slow")
        began.set()
        go_on.wait(10)
        under_way.remove("slow")
        raise ValueError("nobody hears of it")

    gone = asyncio.create_task(one.in_thread(slow))
    await asyncio.to_thread(began.wait, 10)
    gone.cancel()
    await asyncio.wait([gone])
    after = asyncio.create_task(one.in_thread(lambda: list(under_way)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not after.done()
    go_on.set()
    assert await after == []


async def test_what_others_take_of_the_processor_is_not_counted() -> None:
    """Ten datagrams in as many seconds, each of 50 µs, in the middle of which others ran for a second."""
    clock, worked = Clock(), Clock()
    loop_time = LoopTimeBudget(FairScheduler(clock, worked))
    for _ in range(10):
        loop_time.begin()
        worked.now_s += 0.00005
        clock.now_s += 1.0
        loop_time.count()
        assert not loop_time.used_up


async def test_what_a_coroutine_does_between_its_waits_is_counted(clock: Clock) -> None:
    loop_time, go_on = LoopTimeBudget(FairScheduler(clock, clock)), asyncio.Event()

    async def work() -> str:
        clock.now_s += AT_ONCE_S
        await go_on.wait()
        clock.now_s += AT_ONCE_S
        return "done"

    task = asyncio.create_task(_awaited(metered(work(), loop_time)))
    await asyncio.sleep(0)
    assert not loop_time.used_up
    go_on.set()
    assert await task == "done"
    assert loop_time.used_up


async def test_work_that_is_counted_fails_and_is_cancelled_as_any() -> None:
    loop_time, seen = LoopTimeBudget(FairScheduler()), list[str]()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("its own")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(KeyError, match="its own"):
        await metered(fail(), loop_time)
    task = asyncio.create_task(_awaited(metered(wait(), loop_time)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert seen == ["cancelled"]


async def _awaited(work: metered[Any]) -> Any:
    return await work


async def test_the_connections_of_one_address_have_a_bounded_part_together(clock: Clock) -> None:
    """Fifty of them, each with what one may have, had more than all of the loop's time."""
    one, waited, piece_s = FairScheduler(clock, clock), list[str](), 0.0001
    many = [LoopTimeBudget(one, "203.0.113.7") for _ in range(50)]
    other = LoopTimeBudget(one, "203.0.113.8")
    freely_s = 0.0
    for _ in range(400):
        for loop_time in many:
            if not loop_time.used_up:
                loop_time.begin()
                clock.now_s += piece_s
                loop_time.count()
                freely_s += piece_s
        clock.now_s += 0.020 - piece_s
        other.begin()
        clock.now_s += piece_s
        other.count()
        waited += ["other"] if other.used_up else []
    assert freely_s <= clock.now_s * fair_scheduler.TOGETHER + fair_scheduler.TOGETHER_AT_ONCE_S + piece_s
    assert waited == [], "whoever is elsewhere has their own part"


async def test_who_had_little_is_before_the_others_of_an_address(clock: Clock) -> None:
    one, done = FairScheduler(clock, clock), list[str]()
    flooding, speaking = LoopTimeBudget(one, "203.0.113.7"), LoopTimeBudget(one, "203.0.113.7")
    flooding.begin()
    clock.now_s += 1.0
    flooding.count()
    assert speaking.used_up, "what the address may have freely is gone"
    flooding.join(lambda: done.append("flooding"))
    speaking.join(lambda: done.append("speaking"))
    await eventually(lambda: len(done) == 2)
    assert done == ["speaking", "flooding"]


async def test_an_address_of_which_nobody_is_left_is_forgotten() -> None:
    one = FairScheduler()
    for n in range(1000):
        LoopTimeBudget(one, f"203.0.113.{n % 250}").begin()
    gc.collect()
    assert not one._together
