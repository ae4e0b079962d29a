"""A telephone's sound, as the session gets it: an exchange that floods is cut off, and one whose line stalls is not."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.rate_limiter import PATIENCE_S, RateLimiter
from app.transports.disconnect import SLOW, TOO_MUCH, Disconnect
from app.transports.telephone import audiosocket
from app.transports.telephone.audiosocket import AudioSockets, AudioSocketStream
from app.transports.telephone.call_control import CallControl
from app.transports.telephone.media_stream import RATE_HZ
from app.transports.telephone.phone import AHEAD_S, Phone
from tests.app.rig import running, script_spec


class Stream:
    """Brings more sound at once than a call may be ahead, of which ``made_up_s`` was not sent."""

    name, lead_s, way_s = "call", 0.1, 0.02

    def __init__(self, made_up_s: float) -> None:
        self.made_up_s = made_up_s
        self.loop_time = LoopTimeBudget(FairScheduler())

    async def received(self) -> AsyncGenerator[Any]:
        for _ in range(round(AHEAD_S) + 2):
            yield np.zeros(RATE_HZ, np.int16)
        yield np.empty(0, np.int16)  # it is there still


@pytest.mark.parametrize(("made_up_s", "code"), [(0.0, SLOW), (2.0, 1000)], ids=["a flood", "a line that stalls"])
async def test_only_what_an_exchange_sends_can_be_too_much(made_up_s: float, code: int) -> None:
    stream: Any = Stream(made_up_s)
    async with running(script_spec()) as server:
        phone = Phone(stream, server.service, CallControl(True, {}))
        with pytest.raises(Disconnect) as why:
            await phone._listen()
    assert why.value.code == code
    if code == 1000:
        assert len(phone.inbox._waiting) == round(AHEAD_S) + 2, "what has no sound says nothing to the session"


async def test_messages_without_sound_are_read_at_the_rate_of_a_client_and_let_others_run() -> None:
    """AudioSocket's smallest message: a hundred thousand of them lie in one read of the socket."""
    reader: Any = asyncio.StreamReader()
    writer = Mock()
    reader.feed_data(b"\x10\0\0" * 20_000)
    stream = AudioSocketStream("call", reader, writer, LoopTimeBudget(FairScheduler(), "", RateLimiter(400, 4e6)))
    async with running(script_spec()) as server:
        phone = Phone(stream, server.service, CallControl(True, {}))
        listening = asyncio.create_task(phone._listen())
        longest_s, before_s = 0.0, time.thread_time()  # of this thread: the machine may have other work
        for _ in range(100):
            await asyncio.sleep(0.005)
            longest_s = max(longest_s, time.thread_time() - before_s)
            before_s = time.thread_time()
        listening.cancel()
    assert longest_s < 0.1
    assert len(reader._buffer) > 3 * 15_000, "4,000 at once, and 400 a second"


async def test_a_connection_that_is_gone_at_once_takes_no_place_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(**_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(asyncio, "open_connection", gone)
    monkeypatch.setattr(audiosocket, "MOST_CALLS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(AudioSockets(Mock()).accept(listener, tasks))
            for _ in range(3):
                with socket.create_connection(listener.getsockname()) as caller:
                    caller.setblocking(False)
                    async with asyncio.timeout(5):
                        assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""
            accepting.cancel()


async def test_an_exchange_that_floods_for_a_minute_is_cut_off() -> None:
    now = [0.0]
    pace = RateLimiter(400, 4e6)
    stream = AudioSocketStream(
        "call", asyncio.StreamReader(), Mock(), LoopTimeBudget(FairScheduler(lambda: now[0]), "", pace)
    )
    pace.spend(400 * 100, 0, 0.0)
    now[0] = PATIENCE_S + 1
    with pytest.raises(Disconnect) as why:
        await stream._keep_pace(0)
    assert why.value.code == TOO_MUCH
