"""Who counts as alive, by the clock alone: no process, no socket, no sleep."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import msgspec
import pytest

from engine.control.membership import (
    LAST_PENALTY_S,
    LONELY_S,
    MOST_PATIENCE_S,
    ON_DISK_S,
    STEADY_S,
    Loss,
    Membership,
)
from engine.core import Remembered
from engine.deployment.config import HeartbeatSpec
from engine.ipc.messages import Beat, Blocking
from engine.ipc.processor_time import ProcessorTime, ThreadTime

TIMEOUT_S, INTERVAL_S = 1.0, 0.2


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def members(clock: Clock) -> Membership:
    return Membership(HeartbeatSpec(interval_s=INTERVAL_S, timeout_s=TIMEOUT_S), clock)


KEPT = Remembered(asked=9, reused=4, hits=1, evicted=0, held_bytes=100)


def beat(worker: str, steps: int = 0, queue: int = 0, step_s: float = 0.0) -> Beat:
    return Beat(worker, steps, {"talker": queue}, {"talker": step_s})


Read = Callable[[str], ProcessorTime | None]
Thread = Callable[[float], ThreadTime]


def unknown(worker: str) -> None:
    """Every worker's processor time."""


def pass_time(members: Membership, clock: Clock, seconds: float, read: Read = unknown) -> list[Loss]:
    """Let time pass, and look whenever it is due, as the fleet does."""
    end_s, lost = clock.now_s + seconds, list[Loss]()
    while members.due_s <= end_s:
        clock.now_s = max(clock.now_s, members.due_s)
        lost += members.look(read)
    clock.now_s = end_s
    return lost


def alive(members: Membership, name: str = "worker0.0") -> str:
    id = members.issue(name)
    members.join(id)
    return id


def process(clock: Clock, *threads: Thread) -> Read:
    """The readings of a process with these threads."""
    return lambda worker: ProcessorTime(
        clock.now_s, {number: thread(clock.now_s) for number, thread in enumerate(threads)}
    )


def starved(now_s: float) -> ThreadTime:
    """It is ready to run and gets no processor: Linux will count this wait when it is over."""
    return ThreadTime(1.0, 5.0, 7, "R")


def often_starved(now_s: float) -> ThreadTime:
    """It has waited for half of its time, and now sleeps."""
    return ThreadTime(1.0, now_s / 2, int(now_s * 100), "S")


def looping(now_s: float) -> ThreadTime:
    return ThreadTime(now_s, 5.0, 7, "R")


def sleeping(now_s: float) -> ThreadTime:
    return ThreadTime(1.0, 5.0, 7, "S")


def stopped(now_s: float) -> ThreadTime:
    return ThreadTime(1.0, 5.0, 7, "T")


def on_disk(now_s: float) -> ThreadTime:
    return ThreadTime(1.0, 5.0, 7, "D")


@pytest.mark.seed("A1.16")
def test_ids_are_made_in_one_place_and_never_twice(members: Membership) -> None:
    ids = [members.issue(random.choice(["worker0.0", "worker0.1"])) for _ in range(64)]
    assert len(set(ids)) == 64
    assert {id.rpartition("#")[0] for id in ids} == {"worker0.0", "worker0.1"}, "who comes back has its name again"


@pytest.mark.seed("A1.6")
def test_silence_for_the_timeout_and_no_less_is_a_loss(members: Membership, clock: Clock) -> None:
    id = alive(members)
    assert pass_time(members, clock, TIMEOUT_S - 0.001) == []
    (loss,) = pass_time(members, clock, 0.002)
    assert loss.worker == id
    assert "silent" in loss.why
    assert members.look() == []


@pytest.mark.seed("A1.6")
def test_who_beats_lives_however_the_wall_clock_jumps(members: Membership, clock: Clock) -> None:
    id = alive(members)
    for _ in range(50):  # the only clock is the one that was handed in
        assert pass_time(members, clock, INTERVAL_S) == []
        assert members.beat(id, beat(id)) is not None


@pytest.mark.seed("A1.4")
def test_a_heartbeat_brings_the_queue_and_the_time_of_a_step(members: Membership) -> None:
    id = alive(members)
    life = members.beat(id, beat(id, steps=3, queue=7, step_s=0.01))
    assert life is not None
    assert (life.beat.steps, life.beat.queues, life.beat.step_s) == (3, {"talker": 7}, {"talker": 0.01})


@pytest.mark.seed("A1.7")
def test_what_an_earlier_incarnation_says_changes_nothing(members: Membership, clock: Clock) -> None:
    old = alive(members)
    members.leave(old)
    new = alive(members)
    assert old != new
    assert members.beat(old, beat(old, steps=9)) is None
    assert members.beat(new, beat(old, steps=9)) is None
    assert members.beat(old, beat(new, steps=9)) is None, "nor in the name of the one that lives"
    assert members.life(old) is None
    life = members.life(new)
    assert life is not None
    assert life.beat.steps == 0
    assert pass_time(members, clock, TIMEOUT_S)[0].worker == new, "and it kept nobody alive"


BAD = {
    "a negative queue": Beat("worker0.0#1", 1, {"talker": -1}, {}),
    "a negative count": Beat("worker0.0#1", -1, {}, {}),
    "an endless step": Beat("worker0.0#1", 1, {}, {"talker": float("inf")}),
    "no time": Beat("worker0.0#1", 1, {}, {"talker": float("nan")}),
    "a clock without time": Beat("worker0.0#1", 1, {}, {}, float("nan")),
    "an incarnation to come": Beat("worker0.0#2", 1, {}, {}),
    "a negative memory": Beat("worker0.0#1", 1, {}, {}, None, {"talker": msgspec.structs.replace(KEPT, hits=-1)}),
    "a stranger": Beat("nobody", 1, {}, {}),
    "nothing": Beat("", 1, {}, {}),
}


@pytest.mark.seed("A1.2", "A1.3", "A1.10")
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_heartbeat_that_cannot_be_true_is_dropped_with_one_warning(
    members: Membership, clock: Clock, bad: Beat, caplog: pytest.LogCaptureFixture
) -> None:
    id = alive(members)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            assert members.beat(id, bad) is None
    assert len(caplog.records) == 1
    life = members.life(id)
    assert life is not None
    assert life.beat.steps == 0
    assert pass_time(members, clock, TIMEOUT_S), "nor is it a sign of life"


def test_who_beats_but_makes_no_step_is_stuck(members: Membership, clock: Clock) -> None:
    id = alive(members)
    lost: list[Loss] = []
    for _ in range(10):
        members.beat(id, beat(id, steps=5, queue=2))
        lost += pass_time(members, clock, INTERVAL_S / 2)
        if lost:
            break
    else:
        pytest.fail("nobody noticed")
    assert "no step" in lost[0].why


def test_who_has_nothing_to_do_is_not_stuck(members: Membership, clock: Clock) -> None:
    id = alive(members)
    for _ in range(100):
        assert members.beat(id, beat(id, steps=5)) is not None
        assert pass_time(members, clock, INTERVAL_S) == []


def test_long_steps_get_five_times_their_length(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.beat(id, beat(id, steps=1, queue=1, step_s=0.6))
    assert pass_time(members, clock, 2.99) == []
    assert [loss.worker for loss in pass_time(members, clock, 0.02)] == [id]


def test_a_blocking_step_may_take_as_long_as_its_stage_says_however_silent_the_worker(
    members: Membership, clock: Clock
) -> None:
    """Such a call may hold Python's lock, and the heartbeats with it."""
    id = alive(members)
    members.blocking(id, Blocking("voice", 5.0))
    assert pass_time(members, clock, 4.99) == []
    (loss,) = pass_time(members, clock, 0.02)
    assert loss.worker == id
    assert "a step of its stage voice has taken longer than the allowed 5 s" in loss.why


def test_heartbeats_do_not_hide_a_blocking_step_that_hangs(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.blocking(id, Blocking("voice", 5.0))
    lost: list[Loss] = []
    for n in range(26):
        members.beat(id, beat(id, steps=n, queue=n % 2))  # its other stages step on
        lost += pass_time(members, clock, INTERVAL_S)
        assert not lost or n >= 24
    assert [loss.worker for loss in lost] == [id]


def test_after_a_blocking_step_has_returned_silence_counts_anew(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.blocking(id, Blocking("voice", 5.0))
    assert pass_time(members, clock, 4.5) == []
    members.blocking(id, Blocking("voice", 0.0))
    assert pass_time(members, clock, TIMEOUT_S - 0.01) == []
    (loss,) = pass_time(members, clock, 0.02)
    assert "silent" in loss.why


def test_of_two_blocking_steps_the_first_deadline_counts(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.blocking(id, Blocking("ears", 9.0))
    members.blocking(id, Blocking("voice", 3.0))
    assert pass_time(members, clock, 2.9) == []
    members.blocking(id, Blocking("voice", 0.0))
    assert pass_time(members, clock, 6.0) == []
    (loss,) = pass_time(members, clock, 0.2)
    assert "its stage ears" in loss.why


def test_how_long_blocking_steps_take_excuses_no_silence_between_them(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.blocking(id, Blocking("talker", 9.0))
    members.blocking(id, Blocking("talker", 0.0))
    members.beat(id, beat(id, steps=1, step_s=3.0))
    assert pass_time(members, clock, TIMEOUT_S - 0.01) == []
    assert [loss.worker for loss in pass_time(members, clock, 0.02)] == [id]


def test_a_blocking_step_is_not_charged_for_a_stall_of_the_server(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.blocking(id, Blocking("voice", 2.0))
    clock.now_s = members.due_s + 7.0
    assert members.look() == []
    assert pass_time(members, clock, 1.5) == []
    assert [loss.worker for loss in pass_time(members, clock, 0.2)] == [id]


def test_a_blocking_step_that_waits_for_a_processor_has_time_while_heartbeats_go_on(
    members: Membership, clock: Clock
) -> None:
    """Its thread waits for half of the time; the event loop does not."""
    id = alive(members)
    members.blocking(id, Blocking("voice", 2.0))
    begun_s = clock.now_s
    while not (lost := pass_time(members, clock, INTERVAL_S, process(clock, sleeping, often_starved))):
        members.beat(id, beat(id))
    assert [loss.worker for loss in lost] == [id]
    assert clock.now_s - begun_s == pytest.approx(4.0, abs=3 * INTERVAL_S)


@pytest.mark.parametrize("most_s", [-1.0, float("nan"), float("inf")])
def test_a_blocking_step_without_a_time_is_ignored_with_one_warning(
    members: Membership, clock: Clock, most_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    id = alive(members)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            members.blocking(id, Blocking("voice", most_s))
    assert len(caplog.records) == 1
    assert [loss.worker for loss in pass_time(members, clock, TIMEOUT_S + 0.1)] == [id]


@pytest.mark.parametrize("threads", [(starved,), (sleeping, starved)], ids=["main thread", "another thread"])
def test_a_worker_that_gets_no_processor_is_not_silent(
    members: Membership, clock: Clock, threads: tuple[Thread, ...]
) -> None:
    """Also if another thread waits: it may hold the GIL."""
    id = alive(members)
    members.beat(id, beat(id, steps=1, queue=1))
    assert pass_time(members, clock, 100.0, process(clock, *threads)) == []
    (loss,) = pass_time(members, clock, TIMEOUT_S, process(clock, sleeping, sleeping))
    assert loss.worker == id, "when the load ends, it has its usual time"


def test_short_waits_for_a_processor_are_no_silence_either(members: Membership, clock: Clock) -> None:
    alive(members)
    assert pass_time(members, clock, TIMEOUT_S + 0.2, process(clock, often_starved)) == []
    assert pass_time(members, clock, TIMEOUT_S, process(clock, often_starved))


@pytest.mark.parametrize("thread", [looping, sleeping, stopped])
def test_a_worker_that_hangs_is_lost_in_time_whatever_it_does(
    members: Membership, clock: Clock, thread: Thread
) -> None:
    id = alive(members)
    members.beat(id, beat(id))
    assert pass_time(members, clock, TIMEOUT_S - 0.001, process(clock, thread)) == []
    assert [loss.worker for loss in pass_time(members, clock, 0.002, process(clock, thread))] == [id]


def test_waits_before_a_heartbeat_excuse_no_silence_after_it(members: Membership, clock: Clock) -> None:
    id = alive(members)
    assert pass_time(members, clock, 50.0, process(clock, starved)) == []
    members.beat(id, beat(id))
    assert pass_time(members, clock, TIMEOUT_S + 0.002, process(clock, lambda now_s: ThreadTime(2.0, 55.0, 8, "S")))


def test_waiting_for_a_disk_is_no_silence_for_a_while(members: Membership, clock: Clock) -> None:
    alive(members)
    begun_s = clock.now_s
    while not (lost := pass_time(members, clock, INTERVAL_S, process(clock, on_disk))):
        pass
    assert clock.now_s - begun_s == pytest.approx(TIMEOUT_S + ON_DISK_S, abs=2 * INTERVAL_S)
    assert "for a disk for 5" in lost[0].why


def test_a_loss_tells_what_the_worker_did_meanwhile(members: Membership, clock: Clock) -> None:
    alive(members)
    (loss,) = pass_time(members, clock, TIMEOUT_S, process(clock, looping))
    assert loss.why == (
        "it has been silent for 1.0 s "
        "(in the last 0.6 s, it computed for 0.6 s, and waited for a processor for 0.0 s and for a disk for 0.0 s)"
    )


def test_a_worker_that_was_lost_before_may_be_silent_for_longer(members: Membership, clock: Clock) -> None:
    """Each restart adds to the load that may have made it silent."""
    waits: list[float] = []
    for _ in range(8):
        alive(members)
        begun_s = clock.now_s
        while not pass_time(members, clock, 0.01):
            pass
        waits.append(clock.now_s - begun_s)
        members.lost("worker0.0")
    assert waits == pytest.approx([1.0, 1.0, 1.5, 2.0, 3.0, 5.0, 5.0, 5.0], abs=0.02)
    assert waits[-1] == pytest.approx(TIMEOUT_S + MOST_PATIENCE_S, abs=0.02)


def test_nobody_is_given_up_for_a_stall_of_the_server_itself(members: Membership, clock: Clock) -> None:
    id = alive(members)
    members.beat(id, beat(id, steps=1, queue=1))
    clock.now_s = members.due_s + 7.0  # the loop was blocked when it should have looked
    assert members.look() == []
    assert members.due_s == pytest.approx(clock.now_s + INTERVAL_S), "it gets what was lost, and hardly more"
    assert [loss.worker for loss in pass_time(members, clock, TIMEOUT_S)] == [id]


def test_a_stall_of_the_server_does_not_hide_that_a_worker_waits(members: Membership, clock: Clock) -> None:
    """On a machine that is overloaded for minutes, the server looks late, and no worker gets a processor."""
    alive(members)
    for _ in range(200):
        clock.now_s = members.due_s + random.choice([0.0, 0.0, 0.0, 1.5 * INTERVAL_S, 10 * INTERVAL_S])
        assert members.look(process(clock, starved)) == []
    assert pass_time(members, clock, TIMEOUT_S, process(clock, sleeping))


def test_a_stall_of_the_server_gives_no_time_in_advance(members: Membership, clock: Clock) -> None:
    """Otherwise it would look too late at a worker that is heard meanwhile, and take its waits for silence."""
    id = alive(members)
    clock.now_s = members.due_s + 3.0
    members.beat(id, beat(id))  # it waited in the socket
    assert members.look(process(clock, starved)) == []
    assert members.due_s <= clock.now_s + 2 * INTERVAL_S


def test_a_worker_is_observed_before_it_counts_as_lost(members: Membership, clock: Clock) -> None:
    id = alive(members)
    clock.now_s = members.due_s
    members.look(process(clock, starved))
    members.beat(id, beat(id))
    clock.now_s += TIMEOUT_S
    members._planned_s = clock.now_s  # pyright: ignore[reportPrivateUsage] - it looks because of another worker
    assert members.look(process(clock, starved)) == []
    assert pass_time(members, clock, 50.0, process(clock, starved)) == []


def test_a_server_that_is_often_late_still_finds_a_worker_that_hangs(members: Membership, clock: Clock) -> None:
    alive(members)
    for _ in range(20):
        clock.now_s = members.due_s + 2 * INTERVAL_S
        assert members.look(process(clock, sleeping)) == []
        clock.now_s = members.due_s
        if members.look(process(clock, sleeping)):
            return
    pytest.fail("nobody noticed")


def test_a_flapping_place_stays_empty_twice_as_long_each_time(members: Membership, clock: Clock) -> None:
    waits: list[float] = []
    for _ in range(12):
        members.lost("worker0.0")
        waits.append(members.penalty_s("worker0.0", lonely=False))
        clock.now_s += waits[-1]
    assert waits[:5] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == LAST_PENALTY_S
    assert members.penalty_s("worker0.1", lonely=False) == 0.0, "the others do not pay for it"
    clock.now_s += STEADY_S + LAST_PENALTY_S + 1
    members.lost("worker0.0")
    assert members.penalty_s("worker0.0", lonely=False) == 0.0, "after a steady minute it is forgotten"


def test_the_last_one_is_never_kept_out_for_long(members: Membership) -> None:
    for _ in range(20):
        members.lost("worker0.0")
    assert members.penalty_s("worker0.0", lonely=True) == LONELY_S


@pytest.mark.seed("A1.8")
def test_nothing_is_left_of_those_who_are_gone(members: Membership, clock: Clock) -> None:
    ids = [alive(members, f"worker0.{i % 3}") for i in range(300)]
    members.beat(ids[-1], beat(ids[-1]))
    assert len(pass_time(members, clock, 2 * TIMEOUT_S)) == 300
    assert len(members) == 0
    newcomer = alive(members)
    assert members.life(newcomer) is not None
    assert all(members.life(id) is None for id in ids)
