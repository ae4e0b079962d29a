"""Datagrams of one sender: at once while it keeps to its rate and share, in its turn or never beyond that."""

from __future__ import annotations

from typing import Any

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.rate_limiter import RateLimiter
from app.transports.datagram_intake import MOST_WAITING, DatagramIntake
from tests.app.rig import eventually


class Clock:
    """Each datagram takes ``work_s`` of the loop's time."""

    now_s = worked_s = 0.0
    work_s = 0.0


def intake(clock: Clock, pace: RateLimiter | None = None) -> tuple[DatagramIntake, list[bytes]]:
    taken: list[bytes] = []

    def read(data: bytes, address: Any) -> None:
        clock.worked_s += clock.work_s
        taken.append(data)

    scheduler = FairScheduler(worked=lambda: clock.worked_s)
    return DatagramIntake(read, LoopTimeBudget(scheduler, "", pace)), taken


async def test_a_telephone_s_packets_are_read_as_they_come() -> None:
    one, taken = intake(Clock())
    for n in range(100):
        one.put(bytes([n]), None)
        assert len(taken) == n + 1


async def test_what_is_beyond_the_rate_is_dropped() -> None:
    one, taken = intake(Clock(), RateLimiter(1.0, 1e6))
    for _ in range(50):
        one.put(b"x", None)
    await eventually(lambda: not one._waiting)
    assert 10 <= len(taken) <= 12


async def test_what_takes_too_long_waits_for_its_turn_and_no_more_than_a_second_of_it() -> None:
    clock = Clock()
    clock.work_s = 0.0005
    one, taken = intake(clock)
    for n in range(200):
        one.put(bytes([n]), None)
    assert len(taken) < 5
    await eventually(lambda: len(taken) >= MOST_WAITING)
    assert taken[:MOST_WAITING] == [bytes([n]) for n in range(MOST_WAITING)], "in order"


async def test_nothing_is_read_after_the_end() -> None:
    clock = Clock()
    clock.work_s = 1.0
    one, taken = intake(clock)
    for _ in range(10):
        one.put(b"x", None)
    one.close()
    before = len(taken)
    one._again()
    assert len(taken) == before
