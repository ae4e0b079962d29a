"""Recordings are decoded off the event loop, one at a time, and not for those who have left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from app.media import audio, decode_thread
from app.media.audio import MediaError
from app.media.decode_thread import Decoding
from engine import Overloaded
from tests.app.media.test_audio import wav


async def test_one_at_a_time_and_none_for_who_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go = threading.Semaphore(0), threading.Semaphore(0)
    seen: list[bytes] = []

    def slow(data: bytes, limit_s: float, unwanted: Any) -> Any:
        seen.append(data)
        began.release()
        go.acquire()
        return np.zeros(len(data), np.int16)

    monkeypatch.setattr(decode_thread, "decode_audio", slow)
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


async def test_what_is_being_decoded_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """476 kB can be minutes of sound of eight channels, which nobody waits for."""
    frames: list[int] = []
    asked, go = threading.Event(), threading.Event()
    mixed = audio._mixed

    def counted(frame: Any, channels: int) -> Any:
        frames.append(frame.samples)
        asked.set()
        go.wait(20)
        return mixed(frame, channels)

    monkeypatch.setattr(audio, "_mixed", counted)
    one = Decoding()
    task = asyncio.create_task(one.samples(wav(np.zeros(16_000 * 60, np.int16)), 300.0), name="asking")
    await asyncio.to_thread(asked.wait, 20)
    task.cancel()
    await asyncio.wait([task])
    go.set()
    await one.close()
    assert len(frames) == 1


async def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(decode_thread, "decode_audio", lambda *_: go.wait(20) and np.zeros(1, np.int16))
    one = Decoding()
    asking = [asyncio.create_task(one.samples(b"a", 1.0), name="asking") for _ in range(decode_thread.LINE)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await one.samples(b"a", 1.0)
    go.set()
    await asyncio.gather(*asking)
    assert len(await one.samples(b"a", 1.0)) == 1
    await one.close()
