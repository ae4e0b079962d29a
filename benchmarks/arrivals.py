"""Arrivals at random, as users come: an open loop, in which nobody waits for the answer of another. Knows no engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np

T = TypeVar("T")


async def poisson(ask: Callable[[], Awaitable[T]], rate: float, count: int, seed: int = 0) -> list[T]:
    """Ask ``count`` times, ``rate`` times a second on average, without waiting for late answers. Returns every
    answer."""
    gaps_s = np.random.default_rng(seed).exponential(1 / rate, count)
    asked: list[asyncio.Task[T]] = []
    due_s = time.monotonic()
    async with asyncio.TaskGroup() as users:
        for number, gap_s in enumerate(gaps_s):
            due_s += float(gap_s)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            asked.append(users.create_task(_awaited(ask), name=f"user {number}"))
    return [task.result() for task in asked]


async def _awaited(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()  # called in its own task: one that is cancelled before its first step leaves nothing unawaited
