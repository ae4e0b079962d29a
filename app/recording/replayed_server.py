"""The server's parts as a replayed session sees them: results and waits end at the times of the recording."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from itertools import count
from typing import TypeVar

from app.realtime.inference_thread import InferenceThread
from app.realtime.ports import EndOfTurnModel
from app.realtime.timer_lateness import TimerLatenessEstimator
from app.realtime.waits import Waits
from app.recording.virtual_loop import VirtualLoop
from engine.core import Pcm

T = TypeVar("T")

JUDGED_S = 0.03
"""Time of the end-of-turn model for a pause that the recording lacks, in seconds."""


LATE_S = 1.0
"""Seconds by which a timer that the recording lacks is late, so that others decide first."""


class ReplayedInference(InferenceThread):
    """Computes end-of-turn judgements and speaker embeddings at once, and releases them at the recorded times."""

    def __init__(self, known_s: dict[int, float], loop: VirtualLoop) -> None:
        super().__init__()
        self._known_s = known_s
        self._loop = loop
        self._numbers = count(1)

    def run(self, work: Callable[[Pcm], T], pcm: Pcm) -> Future[T]:
        judged = Future[T]()
        result = work(pcm)
        known_s = self._known_s.get(next(self._numbers), self._loop.time() + JUDGED_S)

        def release() -> None:
            if judged.set_running_or_notify_cancel():
                judged.set_result(result)

        if math.isfinite(known_s):  # otherwise the recorded model gave no result
            self._loop.call_at(known_s, release)
        return judged

    def warm_up(self, model: EndOfTurnModel) -> None:
        """Do nothing: the first result may take longer here."""

    def warn(self, reason: str) -> None:
        """Do nothing: the recorded server was late, not this one."""

    def warn_speaker(self, reason: str) -> None:
        """Do nothing: as for ``warn``."""


class ReplayedWaits(Waits):
    """Ends each wait at its recorded time. ``names`` are those of the parts."""

    def __init__(self, ends_s: dict[str, float], loop: VirtualLoop, names: Iterator[str]) -> None:
        self._ends_s = ends_s
        self._loop = loop
        self._names = names
        self._name = next(names)
        self._numbers = count(1)

    def part(self) -> Waits:
        return ReplayedWaits(self._ends_s, self._loop, self._names)

    async def result(self, work: Awaitable[T]) -> T:
        end_s = self._ends_s.get(self._next(), 0.0)
        try:
            return await work
        finally:
            await self._loop.reach(end_s)

    async def moment(self) -> None:
        await self.alarm(asyncio.Event(), 0.0)

    def ended(self, then: Callable[[], None]) -> None:
        end_s = self._ends_s.get(f"{self._name}.end", self._loop.time() + LATE_S)
        self._loop.call_at(end_s, then)

    async def alarm(self, event: asyncio.Event, delay_s: float | None) -> None:
        end_s = self._ends_s.get(self._next())
        if end_s is not None:
            await self._loop.reach(end_s)
        else:  # its end came after the recording's, or the replay differs
            await super().alarm(event, None if delay_s is None else delay_s + LATE_S)

    def _next(self) -> str:
        return f"{self._name}.{next(self._numbers)}"


class ReplayedLateness(TimerLatenessEstimator):
    """Returns the recorded additional lead of a call, given as its changes by the number of the reading."""

    def __init__(self, changes: Mapping[int, float]) -> None:
        super().__init__()
        self._changes = changes
        self._ahead_s = 0.0
        self._readings = count(1)

    def came(self, late_s: float, now_s: float) -> None:
        """Do nothing: the recorded server was late, not this one."""

    def ahead_s(self, now_s: float) -> float:
        self._ahead_s = self._changes.get(next(self._readings), self._ahead_s)
        return self._ahead_s
