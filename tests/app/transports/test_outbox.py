"""The bound of what waits for one socket."""

from __future__ import annotations

import asyncio

import pytest

from app.transports.outbox import Outbox


async def test_messages_leave_in_order_and_wake_the_writer() -> None:
    outbox = Outbox(limit_s=10)
    waiting = asyncio.ensure_future(outbox.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put("a", 1.0)
    outbox.put("b")
    await waiting
    assert [outbox.take(), outbox.take(), outbox.take()] == ["a", "b", None]


async def test_audio_is_bounded_in_seconds_and_room_comes_back() -> None:
    outbox = Outbox(limit_s=1.0)
    for _ in range(5):
        outbox.put("x", 0.6)
        assert outbox.take() == "x"
    outbox.put("a", 0.6)
    assert not outbox.overflowed
    outbox.put("b", 0.6)
    assert outbox.overflowed
    assert [outbox.take(), outbox.take()] == ["a", None]
    await outbox.changed()


async def test_text_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.transports.outbox.MAX_CHARS", 100)
    outbox = Outbox(limit_s=1.0)
    outbox.put("x" * 100)
    assert not outbox.overflowed
    outbox.put("x")
    assert outbox.overflowed
