"""A stream of Twilio's, whose messages the test writes: how late its caller hears."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from fastapi import WebSocket

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.transports.telephone import twilio as twilio_module
from app.transports.telephone.twilio import MARK_S, TwilioStream

SECOND = np.zeros(8000, np.int16)


class Socket:
    """The server's end of a WebSocket."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.comes = asyncio.Queue[dict[str, Any]]()

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def receive(self) -> dict[str, Any]:
        return await self.comes.get()

    @property
    def marks(self) -> list[dict[str, Any]]:
        return [one for one in self.sent if one["event"] == "mark"]


class Caller:
    """A stream at a time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(twilio_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.socket = Socket()
        form = twilio_module._Format("audio/x-mulaw", 8000)
        start = twilio_module._Start("MZ1", "CA1", form)
        self.stream = TwilioStream(cast("WebSocket", self.socket), start, LoopTimeBudget(FairScheduler()))

    async def returns(self, *marks: dict[str, Any]) -> None:
        """Let these marks come back, and then the end of the call."""
        for mark in marks:
            self.socket.comes.put_nowait({"type": "websocket.receive", "text": json.dumps(mark)})
        self.socket.comes.put_nowait({"type": "websocket.disconnect"})
        assert [one async for one in self.stream.received()] == []


async def test_a_mark_tells_how_late_the_caller_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(monkeypatch)
    await caller.stream.send(SECOND)
    caller.now_s += 1.3
    await caller.returns(*caller.socket.marks)
    assert caller.stream.way_s == pytest.approx(0.3)


async def test_a_mark_that_was_thrown_away_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back when the next answer has already begun."""
    caller = Caller(monkeypatch)
    await caller.stream.send(SECOND)
    caller.now_s += MARK_S
    await caller.stream.stop()
    before_s = caller.stream.way_s
    await caller.stream.send(SECOND)
    thrown_away, outstanding = caller.socket.marks
    await caller.returns(thrown_away)
    assert caller.stream.way_s == before_s
    caller.now_s += 1.2
    await caller.returns(outstanding)
    assert caller.stream.way_s == pytest.approx(0.2)
