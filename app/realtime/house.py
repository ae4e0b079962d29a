"""What every session of a server shares: the engine, the figures it is judged by, the limits it keeps, the clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from app.memory import Room
from app.realtime.endpoint import Judge, Sentences
from app.realtime.reply import Answering
from app.realtime.turns import Silero, Vad
from app.settings import Limits, TurnSettings
from app.slices import LoopTime, Slices
from app.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class House:
    """``now`` is monotonic and measures; ``wall`` is only shown."""

    engine: Answering
    metrics: Metrics
    limits: Limits
    turns: TurnSettings
    vad: Callable[[], Vad] = Silero
    camera_every_s: float = 1.0
    judge: Judge = field(default_factory=Sentences)
    slices: Slices = field(default_factory=Slices)
    """Of the event loop's time, between all sessions."""
    address: str = ""
    """Of the session's client: with the others of its address it has a part of the loop's time."""
    room: Room = field(default_factory=Room)
    """Of the server's memory, for one session."""
    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def loop_time(self) -> LoopTime:
        """The session's part of the event loop's time."""
        return LoopTime(self.slices, self.address)

    def voice(self, asked: str) -> str:
        """The loaded voice for a name that a client asked for: itself, however capitalised, or the first there is.

        A model without named voices has "".
        """
        voices = self.engine.model.voice_ids
        return next((one for one in voices if one.lower() == asked.lower()), next(iter(voices), ""))
