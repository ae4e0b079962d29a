"""The event loop of Parley's processes: uvloop if it is installed, otherwise asyncio's own.

A message between two processes costs two wake-ups plus the event loop's own work. uvloop does that work in C, which
makes the whole hand-over a third faster (measured by benchmarks.overhead). uvicorn makes the same choice for the
server.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop
except ImportError:  # uvloop does not support Windows
    from asyncio import new_event_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` like ``asyncio.run``, but on uvloop if it is installed."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def settle() -> None:
    """Exclude all objects that exist now from garbage collection. Call it once everything is loaded.

    Otherwise full collections scan these objects again and again, in the middle of an answer. A full collection takes
    94 ms with torch and transformers loaded, 28 ms without them, and well under 1 ms after this call.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # the next full collection starts at a quarter of the objects that this one finds: now none
