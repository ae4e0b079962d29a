"""The server's parts that a session uses: the engine, metrics, limits and clocks."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from app.facts import MemoryAccess
from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.memory_budget import MemoryReservation
from app.mcp import ToolServers
from app.media.decoding import Decoding
from app.media.images import Image
from app.media.videos import Video, video_of_url
from app.realtime.inference_thread import InferenceThread
from app.realtime.ports import EchoCanceller, EndOfTurnModel, EnginePort, IdlePolicy, SpeakerEncoder, Vad
from app.realtime.waits import Waits
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from engine import CameraFeed
from engine.core import Pcm

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionContext:
    """``now`` is monotonic and used for measuring; ``wall`` is only displayed."""

    engine: EnginePort
    metrics: Metrics
    limits: Limits
    turns: TurnSettings
    vad: Callable[[], Vad]
    end_of_turn: EndOfTurnModel
    """The end-of-turn model of sessions that name none."""
    camera_every_s: float = 0.5
    summarize_at: float = 0.75
    """See ``Settings.summarize_at``."""
    instructions: str = ""
    """See ``Settings.instructions``."""
    echo_canceller: Callable[[], EchoCanceller] | None = None
    """Makes the echo canceller of a session; None: echoes are not cancelled."""
    loop_time: LoopTimeBudget = field(default_factory=lambda: LoopTimeBudget(FairScheduler()))
    """The session's share of the event loop's time."""
    room: MemoryReservation = field(default_factory=MemoryReservation)
    """The session's memory reservation."""
    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    decoding: Decoding = field(default_factory=Decoding)
    end_of_turn_models: Mapping[str, EndOfTurnModel] = field(default_factory=dict[str, EndOfTurnModel])
    """Models that a session may choose, by name."""
    inference: InferenceThread = field(default_factory=InferenceThread)
    """The threads in which end-of-turn models and the speaker encoder work."""
    speaker_encoder: SpeakerEncoder | None = None
    """Tells voices apart; None on a server without the model: every voice opens turns."""
    tool_servers: ToolServers = field(default_factory=ToolServers)
    """The MCP servers that the operator configured."""
    memory: MemoryAccess | None = None
    """The facts of the session's key; None on a server without memory."""
    idle: IdlePolicy | None = None
    """When the session pauses; None: never."""
    measured: Callable[[str, float], float] = lambda name, value: value
    """Passes on a measured duration or position on which the detection of turns depends. A recording stores it by its
    name, and a replay returns the stored one instead."""
    waits: Waits = field(default_factory=Waits)

    @property
    def camera(self) -> CameraFeed:
        """Return the camera input that a session accepts: the model's, but at most at the server's rate."""
        wanted = self.engine.model.camera
        return replace(wanted, fps=min(wanted.fps, 1 / self.camera_every_s))

    async def image(self, image: Image, side: int = 0) -> NDArray[np.uint8]:
        """Decode an image to RGB uint8 [height, width, 3], scaled down so that no side exceeds ``side`` pixels (0:
        unscaled).

        Raises MediaError.
        """
        return await self.waits.result(self.decoding.image(image, self.loop_time, side))

    async def samples(self, recording: BinaryIO) -> Pcm:
        """Decode a recording to int16 [samples] at MIC_RATE_HZ, and close it.

        Raises MediaError, and Overloaded if too many recordings wait.
        """
        return await self.waits.result(self.decoding.samples(recording, self.limits.audio_s, self.loop_time))

    async def video(self, url: str, written: bool) -> Video:
        """Decode a data URI's video as the model accepts it. ``written`` tells whether text accompanies it.

        Raises MediaError, and Overloaded if too many recordings wait.
        """
        recording = await self.in_thread(lambda: io.BytesIO(video_of_url(url)))
        model = self.engine.model
        decoding = self.decoding.video(recording, self.limits.audio_s, model.camera, self.loop_time)
        video = await self.waits.result(decoding)
        return video.taken(model.abilities, written)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run long work of this session in a thread."""
        return await self.waits.result(self.scheduler.in_thread(work))

    async def read(self, work: Callable[[], T], size: int) -> T:
        """Run work on ``size`` bytes of the client: here, or in a thread if there are many."""
        return await self.waits.result(self.scheduler.read(work, size))

    async def pause(self) -> None:
        """Let other sessions work in the middle of long work, if this one has used up its share of the loop's time."""
        await self.waits.result(self.loop_time.pause())

    def end_of_turn_model(self, name: str) -> EndOfTurnModel:
        """Return the end-of-turn model of that name, or the deployment's."""
        return self.end_of_turn_models.get(name, self.end_of_turn)

    @property
    def scheduler(self) -> FairScheduler:
        """Return the scheduler of the event loop's time, shared by all sessions."""
        return self.loop_time.scheduler

    def voice(self, asked: str) -> str:
        """Return the loaded voice for a requested name: the same, ignoring case, or else the first one.

        Returns "" for a model without named voices.
        """
        voices = self.engine.model.voice_ids
        return next((one for one in voices if one.lower() == asked.lower()), next(iter(voices), ""))
