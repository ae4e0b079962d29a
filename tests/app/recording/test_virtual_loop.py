"""Virtual time jumps to the next timer, but waits for threads and for what holds it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.recording.replayed_engine import AudioCutter
from app.recording.virtual_loop import VirtualLoop
from engine import Audio

T = TypeVar("T")


def run(work: Callable[[VirtualLoop], Awaitable[T]], loop: VirtualLoop) -> T:
    async def main() -> T:
        return await work(loop)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_an_hour_takes_no_time() -> None:
    async def work(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    began_s = time.monotonic()
    assert run(work, VirtualLoop()) == 3600
    assert time.monotonic() - began_s < 60


def test_time_stands_still_while_a_thread_works() -> None:
    async def work(loop: VirtualLoop) -> float:
        timer = loop.create_task(asyncio.sleep(5))
        await asyncio.to_thread(time.sleep, 0.05)
        at_s = loop.time()
        await timer
        return at_s

    assert run(work, VirtualLoop()) == 0


def test_time_stands_still_while_it_is_held() -> None:
    held = True

    async def work(loop: VirtualLoop) -> float:
        def release() -> None:
            nonlocal held
            held = False
            at_s.append(loop.time())

        at_s: list[float] = []
        threading.Timer(0.05, loop.call_soon_threadsafe, (release,)).start()
        await asyncio.sleep(1)
        return at_s[0]

    assert run(work, VirtualLoop(holds=lambda until_s: held)) == 0


@given(st.lists(st.integers(1, 50), max_size=8), st.lists(st.integers(1, 50), max_size=8))
def test_audio_is_cut_to_the_recorded_sizes_and_none_is_lost(made: list[int], sizes: list[int]) -> None:
    cutter, whole = AudioCutter(sizes), np.arange(sum(made), dtype=np.float32)
    pieces: list[Audio] = []
    at = 0
    for samples in made:
        at += samples
        pieces += cutter.cut(Audio(whole[at - samples : at], ((at, at),)))
    pieces += cutter.rest()
    found = np.concatenate([np.zeros(0, np.float32), *(piece.wave for piece in pieces)])
    assert np.array_equal(found, whole)
    assert [mark for piece in pieces for mark in piece.marks] == [(at, at) for at in np.cumsum(made)]
    complete = [len(piece.wave) for piece in pieces[: len(sizes)]]
    assert complete[:-1] == sizes[: len(complete)][:-1]
