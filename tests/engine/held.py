"""How much memory what has been made here still holds: bytes of Python and numpy, and of torch's tensors."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress

ROUNDS = 3
LITTLE = 10_000
"""Bytes of a request with which no further round is asked for."""


async def held_per_request(one: Callable[[int], Awaitable[None]], requests: int = 8) -> float:
    """Bytes that stay of each of so many requests which are over: the least of ROUNDS of them, since what a request
    leaves stays of every round, and what else goes on in the process does not.

    As many come before: what only the first ones need, as caches of code and of shapes, is no leak; nor are the lines
    that asyncio's debug mode logs of slow steps, which pytest keeps, and of which a busy machine has many.
    """
    asyncio.get_running_loop().set_debug(False)
    tracemalloc.start(1)
    try:
        least = float("inf")
        for i in range(requests):
            await one(i)
        before = _held()
        for round in range(1, ROUNDS + 1):
            for i in range(round * requests, (round + 1) * requests):
                await one(i)
            after = _held()
            least, before = min(least, (after - before) / requests), after
            if least < LITTLE:
                break
        return least
    finally:
        tracemalloc.stop()


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] + _tensors()


def _tensors() -> int:
    """tracemalloc does not see what torch allocates. Tensors of the device ``meta`` have no bytes."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    storages: dict[int, int] = {}
    for one in gc.get_objects():
        with suppress(ReferenceError, RuntimeError):
            if type(one) is torch.Tensor and not one.is_meta:
                storage = one.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
