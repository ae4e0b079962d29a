"""Recordings are decoded off the event loop, one at a time, and not for those who have left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from app import decoding
from app.decoding import Decoding
from app.media import MediaError


async def test_one_at_a_time_and_none_for_who_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go = threading.Semaphore(0), threading.Semaphore(0)
    seen: list[bytes] = []

    def slow(data: bytes, limit_s: float) -> Any:
        seen.append(data)
        began.release()
        go.acquire()
        return np.zeros(len(data), np.int16)

    monkeypatch.setattr(decoding, "decode_audio", slow)
    one = Decoding()
    asking = [asyncio.create_task(one.samples(data, 1.0), name="asking") for data in (b"a", b"bb", b"ccc")]
    await asyncio.to_thread(began.acquire)
    assert seen == [b"a"]
    asking[1].cancel()
    await asyncio.wait([asking[1]])
    go.release()
    await asyncio.to_thread(began.acquire)
    assert seen == [b"a", b"ccc"]
    go.release()
    assert [len(await asking[0]), len(await asking[2])] == [1, 3]
    await one.close()


async def test_what_is_no_recording_is_the_caller_s_error() -> None:
    one = Decoding()
    with pytest.raises(MediaError):
        await one.samples(b"text", 1.0)
    await one.close()
    await one.close()
