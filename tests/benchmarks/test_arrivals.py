"""Users who come at random: as many as were asked for, at the rate that was asked for, whoever is late."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from benchmarks.arrivals import poisson


async def test_nobody_waits_for_the_answer_of_another() -> None:
    under_way, most = 0, 0

    async def slow() -> float:
        nonlocal under_way, most
        begun_s = time.monotonic()
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.2)
        under_way -= 1
        return begun_s

    times = await poisson(slow, rate=200, count=60)
    assert len(times) == 60
    assert times == sorted(times)
    assert most > 10, "a closed loop would have one at a time"
    gaps_s = np.random.default_rng(0).exponential(1 / 200, 60)
    assert times[-1] - times[0] >= gaps_s[1:].sum() - 0.02, "nobody comes early"


async def test_who_fails_fails_all() -> None:
    async def broken() -> float:
        raise ValueError("no")

    with pytest.raises(ExceptionGroup):
        await poisson(broken, rate=1000, count=3)
