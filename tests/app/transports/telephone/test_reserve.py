"""Ten calls that are answered at once, on a clock of their own: each lives on its reserve while the others begin.

The engine's scheduler, its pace and the playout are the real ones; the times of steps are made up, so that one answer
begins as soon as nano's does, and eight at once as late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.realtime.output.playout import Playout
from app.transports.telephone.media_stream import LEAD_S
from app.transports.telephone.telephones import RESERVE_S
from engine import SPEAKER_RATE_HZ
from engine.deployment.config import ChunkSpec
from engine.worker.listener import Listener
from engine.worker.loop.scheduler import Scheduler
from engine.worker.pace import ListenerPace

STAGES = ("thinker", "talker", "code2wav")
CALLS, FRAMES, FRAME_S = 10, 75, 0.04
TICK_S = 0.001


@dataclass(eq=False)
class Work:
    """What a call has to do at a stage, as the scheduler sees it."""

    call: Call
    name: str
    order: int
    stepped: bool = False
    clock: None = None
    on_clock: bool = False
    blocking: bool = False
    has_prompt: bool = False
    alone: bool = False
    being_read: bool = False
    together: tuple[int, ...] = (1,)

    @property
    def info(self) -> Work:
        return self

    @property
    def listener(self) -> Listener:
        return self.call.listener


@dataclass(eq=False)
class Call:
    pace: ListenerPace
    playout: Playout
    listener: Listener
    work: dict[str, Work] = field(default_factory=dict[str, Work])
    tokens: int = 0
    frames: int = 0
    held: int = 0
    chunks: int = 0

    def __post_init__(self) -> None:
        self.work = {name: Work(self, name, order) for order, name in enumerate(STAGES)}

    def ready(self, now_s: float) -> list[Work]:
        if now_s < self.listener.arrived_s:
            return []
        full = self.held and (self.held >= self.pace.size(self.chunks) or self.frames == FRAMES or self.pace.hurry())
        has = {
            "thinker": self.tokens < FRAMES / 2,
            "talker": self.frames < FRAMES and self.tokens > self.frames / 2,
            "code2wav": full,
        }
        return [self.work[name] for name in STAGES if has[name]]

    def step(self, name: str, now_s: float) -> None:
        self.work[name].stepped = True
        match name:
            case "thinker":
                self.tokens += 1
            case "talker":
                self.frames, self.held = self.frames + 1, self.held + 1
            case _:
                seconds = self.held * FRAME_S
                self.listener.produce(seconds, now_s)
                self.playout.push(np.zeros(round(seconds * SPEAKER_RATE_HZ), np.float32))
                self.held, self.chunks = 0, self.chunks + 1
                if self.frames == FRAMES and self.tokens >= FRAMES / 2:
                    self.playout.end()

    def send(self, now_s: float) -> None:
        began = not self.playout.sent_samples
        while self.playout.take(now_s):
            pass
        if began and self.playout.sent_samples:
            self.listener.started_s = now_s


def step_s(batch: list[Work], prefill_s: float) -> float:
    """Seconds that a step takes: a prompt costs more than a token, and a batch little more than one of them."""
    if batch[0].name != "thinker":
        return 0.004 + (0.0005 if batch[0].name == "talker" else 0.002) * (len(batch) - 1)
    prompts = sum(not one.call.tokens for one in batch)
    return prefill_s * (1 + (prompts - 1) / 2) if prompts else prefill_s / 4


def underruns(reserve_s: float, apart_s: float, prefill_s: float) -> int:
    """Return how often ten callers run dry whose turns end so far apart."""
    now_s, plan = 0.0, Scheduler(dict.fromkeys(STAGES, 16))

    def clock() -> float:
        return now_s

    for name in STAGES:
        plan.timed(name, 0.004)
    calls = list[Call]()
    for number in range(CALLS):
        listener = Listener(number * apart_s)
        pace = ListenerPace(ChunkSpec(first=1, growth=1.5, steady=12), listener, FRAME_S, lambda: plan.round_s, clock)
        playout = Playout(LEAD_S, 0.02, reserve_s=reserve_s, whole=True)
        calls.append(Call(pace, playout, listener))
    while not all(call.playout.drained for call in calls):
        ready: Any = [one for call in calls for one in call.ready(now_s)]
        batch: Any = plan.pick(ready, now_s)
        took_s = step_s(batch, prefill_s) if batch else TICK_S
        ends_s = now_s + took_s
        while now_s < ends_s:
            now_s += TICK_S
            for call in calls:
                call.send(now_s)
        if batch:
            plan.timed(batch[0].name, took_s)
        for one in batch:
            one.call.step(one.name, now_s)
    return sum(call.playout.underruns for call in calls)


@pytest.mark.parametrize("apart_s", [0.0, 0.01, 0.02, 0.03, 0.06])
@pytest.mark.parametrize("prefill_s", [0.005, 0.01, 0.015])
def test_ten_calls_answered_at_once_do_not_run_dry(apart_s: float, prefill_s: float) -> None:
    assert underruns(RESERVE_S, apart_s, prefill_s) == 0


def test_control_a_reserve_of_100_ms_is_used_up() -> None:
    assert any(underruns(0.1, apart_s, 0.015) for apart_s in (0.01, 0.02, 0.03))
