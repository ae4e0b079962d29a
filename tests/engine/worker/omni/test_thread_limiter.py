"""Work for few threads at once."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from engine.worker.omni.thread_limiter import ThreadLimiter


async def test_few_work_at_once_in_the_order_in_which_they_came_also_while_the_loop_stands_still() -> None:
    few, at_once, most, order, lock = ThreadLimiter(2), [0], [0], list[int](), threading.Lock()
    over = threading.Event()

    def work(number: int) -> int:
        with lock:
            order.append(number)
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.002)
        with lock:
            at_once[0] -= 1
        if number == 9:
            over.set()
        return number

    tasks = [asyncio.create_task(few.do(lambda i=i: work(i))) for i in range(10)]  # type: ignore[misc]
    await asyncio.sleep(0)
    assert over.wait(10), "the loop stands here, as in a step"
    assert await asyncio.gather(*tasks) == list(range(10))
    assert order[:2] == [0, 1]
    assert sorted(order) == list(range(10))
    assert most == [2]
    assert await few.do(lambda: "again") == "again"


async def test_an_error_is_met_by_who_waits_for_it_and_who_is_cancelled_has_no_turn() -> None:
    few, gate, done = ThreadLimiter(1), threading.Event(), list[str]()
    first = asyncio.create_task(few.do(lambda: gate.wait(10)))
    wrong = asyncio.create_task(few.do(lambda: 1 // 0))
    left = asyncio.create_task(few.do(lambda: done.append("left")))
    last = asyncio.create_task(few.do(lambda: done.append("last")))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await first
    with pytest.raises(ZeroDivisionError):
        await wrong
    await last
    assert done == ["last"]
    assert left.cancelled()
