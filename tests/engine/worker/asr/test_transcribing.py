"""What ears share: how sound comes in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from engine.chunk import Chunk, Speech, Text
from engine.worker.asr.transcribing import pcm_of


async def _chunks() -> AsyncIterator[Chunk]:
    for chunk in (Speech(np.arange(7, dtype=np.int16)), Text("typed", 0), Speech(np.zeros(0, np.int16)),
                  Speech(np.arange(2, dtype=np.int16))):  # fmt: skip
        yield chunk


async def test_what_the_user_says_comes_as_it_came() -> None:
    assert [pcm.tolist() async for pcm in pcm_of(_chunks())] == [[0, 1, 2, 3, 4, 5, 6], [0, 1]]


async def test_a_recording_that_comes_at_once_is_taken_in_pieces() -> None:
    assert [pcm.tolist() async for pcm in pcm_of(_chunks(), 3)] == [[0, 1, 2], [3, 4, 5], [6], [0, 1]]
