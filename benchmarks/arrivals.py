"""Random arrivals of users (an open loop: no request waits for the answer to another one)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np

T = TypeVar("T")


async def poisson(ask: Callable[[], Awaitable[T]], rate: float, count: int, seed: int = 0) -> list[T]:
    """Send ``count`` requests at ``rate`` per second on average, without waiting for late answers. Returns all
    answers.
    """
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
    return (
        await ask()
    )  # called in its own task, so that cancelling it before its first step leaves no coroutine unawaited
