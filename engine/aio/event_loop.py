"""The event loop that a process of ours runs on: uvloop's where it is to be had, else asyncio's own.

A hand-over between processes is two wake-ups and what the loops do around them, and uvloop does that in C: a third less
in all (benchmarks.overhead). uvicorn makes the same choice for the server. Knows nothing of what runs.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop
except ImportError:  # there is none for Windows
    from asyncio import new_event_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` as ``asyncio.run`` does, on that loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def settle() -> None:
    """Keep the collector from what has been loaded: else it looks through all of it now and then, in mid-speech.

    A full collection takes 94 ms with torch and transformers loaded, 28 ms without; afterwards, well under one.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # it waits for a quarter as much garbage as it found objects the last time: now it has found none
