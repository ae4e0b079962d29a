"""From which moment the benchmark of telephones counts: from that of the WebSocket, beside which its figures stand."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.client.channel import ClientChannel
from app.client.microphone import Microphone
from benchmarks import telephones
from engine.core import Pcm
from tests.app.transports.telephone.exchanges import Telephone

SPOKEN_S = 0.5
WAY_S = 0.3


class Line:
    """A telephone, or a socket, on a clock of its own; an answer of a second comes ``WAY_S`` after the last sound."""

    def __init__(self) -> None:
        self.now_s, self.sent_s, self.sound = 100.0, 0.0, list[tuple[float, Pcm]]()

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    async def speak(self, pcm: Pcm) -> None:
        if pcm.any():
            self.sent_s = self.now_s
        elif self.now_s >= self.sent_s + WAY_S and not self.sound:
            self.sound.append((self.sent_s + WAY_S, np.full(8000, 9000, np.int16)))


def told(rate_hz: int) -> Pcm:
    return np.full(round(SPOKEN_S * rate_hz), 9000, np.int16)


async def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[Line, telephones.Turn]:
    """A turn that a telephone has asked, and its line."""
    line = Line()
    monkeypatch.setattr(telephones, "time", line)
    monkeypatch.setattr(telephones, "asyncio", SimpleNamespace(sleep=line.sleep))
    turn = telephones.Turn(cast("Telephone", line))
    await turn.ask(told(8000))
    return line, turn


async def test_a_telephones_answer_is_counted_from_where_the_websockets_is(monkeypatch: pytest.MonkeyPatch) -> None:
    line, turn = await asked(monkeypatch)
    assert turn.ttfa_ms == pytest.approx(WAY_S * 1000)

    beside = Line()
    monkeypatch.setattr("app.client.microphone.asyncio", SimpleNamespace(sleep=beside.sleep, Lock=asyncio.Lock))
    microphone: Any = Microphone(cast("ClientChannel", beside), beside.monotonic)
    await microphone.speak(told(24_000))
    assert turn.spoke_s - line.sent_s == pytest.approx(beside.now_s - beside.sent_s) == pytest.approx(0)


async def test_a_caller_that_came_late_itself_is_told_beside_the_underruns(monkeypatch: pytest.MonkeyPatch) -> None:
    _, turn = await asked(monkeypatch)
    turn.player.receive(turn.player.ends_s + 0.025, np.full(2400, 0.5, np.float32))
    turn.late_s = 0.13
    figure = telephones.underruns("ten calls", [turn], 0.0)
    assert (figure.value, figure.passed) == (1.0, False)
    assert figure.note == "25 ms at most; 0 by the server's count; the callers came 130 ms late"
