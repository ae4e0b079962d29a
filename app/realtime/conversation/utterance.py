"""The user's turn in progress, speech and camera: the input appends to it, and an engine request reads along.

Positions are samples at MIC_RATE_HZ. Never reads the clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.ids import new_id
from app.media.images import fitted
from app.realtime.protocol import CameraFrame, Content, MessageImage, MessageVideo, UserAudio
from app.refusal import Refusal
from engine import MIC_RATE_HZ, CameraFeed, Speech, VideoFrame
from engine.core import Pcm

EARLY = 0.9
"""Fraction of the frame interval after which the next frame is accepted, since frames arrive with jitter."""

PICTURES_ONLY = CameraFeed()

NOTHING = Speech(np.zeros(0, np.int16))
"""An empty block that replaces an old camera frame once there are newer ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A camera frame in a turn, and the data URI that it arrived as."""

    frame: VideoFrame
    url: str


class Utterance:
    """One utterance in progress. It becomes the item ``item_id`` once it is committed.

    ``camera`` describes the camera input that the model accepts: as one ``film`` with the speech, or as images.
    ``start`` is the position of its first sample in the session.
    """

    def __init__(
        self, limit_samples: int, camera: CameraFeed = PICTURES_ONLY, film: bool = False, start: int = 0
    ) -> None:
        self.item_id = new_id("item")
        self.start = start
        self.samples = 0
        self.closed = False
        self.held = False
        """Whether it may turn out to be a backchannel. Until that is known, clients do not receive its words."""
        self.words = ""
        """All words up to the current pause, once transcribed. Half of them would look like an unfinished sentence."""
        self.whole: bool | None = None
        """Whether the words are a complete request, if the ASR model can tell."""
        self.confident: bool | None = None
        """Whether the ASR model is confident of the words; None until all speech up to the pause is transcribed."""
        self.final_words = ""
        """The final words of the ASR model, confident or not, a request or not."""
        self.silence_ms: float | None = None
        """Milliseconds of silence when the turn was found to be over; None if that was not detected."""
        self.over_probability: float | None = None
        """The end-of-turn model's probability that the turn was over; None if no such model ended it."""
        self.turn_counts: Mapping[str, float] | None = None
        """How the session's turns have ended so far (``TurnOutcomes``); None if the client ended this one."""
        self._limit = limit_samples
        self._camera = camera
        self._film = film
        self._blocks: list[Speech | Shown] = []
        self._shown: deque[int] = deque()  # indexes of the frames among the blocks
        self._next_frame = 0  # samples after which the film accepts a frame
        self._size: tuple[int, int] | None = None  # height and width of the film
        self.interim_confident = True
        """Whether the ASR model is confident of its interim words."""
        self._so_far = ""  # interim words of the ASR model
        self._end: int | None = None  # the number of blocks when the user may have finished
        self._news = asyncio.Event()

    @property
    def so_far(self) -> str:
        """Return the words known so far: all up to the current pause, or else the interim words."""
        return self.words or self._so_far

    @property
    def listening(self) -> bool:
        """Whether the ASR model has recognised words and will report more."""
        return bool(self._so_far)

    @property
    def paused(self) -> bool:
        """Whether the user may have finished: every reader then sees the end of the turn."""
        return self._end is not None

    @property
    def speech(self) -> Pcm:
        """The turn's audio for ASR, up to the end of its last word: int16 [samples]. Silence after that is left out."""
        return _joined(self._blocks[: self._end])

    @property
    def seconds(self) -> float:
        return self.samples / MIC_RATE_HZ

    @property
    def watched(self) -> bool:
        """Whether the turn is a film, whose prompt starts differently from that of speech alone."""
        return self._film and bool(self._shown)

    @property
    def content(self) -> tuple[Content, ...]:
        """Return the camera input and the speech as readers receive them."""
        shown = [one for one in self._blocks[: self._end] if isinstance(one, Shown)]
        if self._film and shown:
            frames, times_s = (
                tuple(part) for part in zip(*((x.frame.pixels, x.frame.at_s) for x in shown), strict=True)
            )
            return MessageVideo(frames, self._camera.fps, shown[-1].url, times_s=times_s), UserAudio(self.speech)
        pictures = [MessageImage(one.frame.pixels, one.url, shown=one is shown[-1]) for one in shown]
        return *pictures, UserAudio(self.speech)

    @property
    def pcm(self) -> Pcm:
        """The whole turn so far: int16 [samples]."""
        return _joined(self._blocks)

    def push(self, pcm: Pcm) -> None:
        """Append int16 [n]. Raises Refusal past the limit, and then appends nothing."""
        self.check_room(len(pcm))
        if len(pcm):
            self.samples += len(pcm)
            self._blocks.append(Speech(pcm))
            self._wake()

    def add_frame(self, frame: CameraFrame, position: int) -> None:
        """Append a camera frame that arrived at this position of the session.

        The fuller a film is, the longer the interval to its next frame, so that a long turn has frames from its whole
        duration. Of single frames, only the newest are kept.
        """
        at, camera, pixels = min(max(0, position - self.start), self.samples), self._camera, frame.pixels
        if self._film:
            left = camera.most - len(self._shown)
            if left <= 0 or 0 < at < self._next_frame:
                return
            self._next_frame = at + int(EARLY * MIC_RATE_HZ / camera.fps) * (camera.most // left) ** 2
            self._size = size = self._size or pixels.shape[:2]
            pixels = fitted(pixels, *size)
        self._shown.append(len(self._blocks))
        self._blocks.append(Shown(VideoFrame(pixels, at / MIC_RATE_HZ), frame.url))
        while len(self._shown) > camera.most:
            self._blocks[self._shown.popleft()] = NOTHING
        self._wake()

    def check_room(self, samples: int) -> None:
        """Raise Refusal if ``samples`` more would exceed the limit."""
        if self.samples + samples > self._limit:
            limit_s = self._limit // MIC_RATE_HZ
            raise Refusal(
                "input_audio_buffer_full", f"The buffer is full ({limit_s} s of audio): commit or clear it.", "audio"
            )

    def pause(self) -> None:
        """Mark a possible end: every reader sees the turn end. If the user continues, readers start again."""
        self._end = len(self._blocks)
        self._wake()

    def resume(self) -> None:
        """Mark that the user continues to speak."""
        self._end = None
        self.words = ""
        self.final_words = ""
        self.whole = None
        self.confident = None
        self._so_far = ""

    def understand(self, words: str, final: bool, whole: bool | None, confident: bool = True) -> None:
        """Set the words of the ASR model, interim or final. ``words`` is "" if they are not a request."""
        if final:
            self.confident = confident
            self.final_words = words
            self.words = words if whole is not False else self._so_far
            self.whole = whole
            self._so_far = ""
        else:
            self._so_far = words
            self.interim_confident = confident

    def close(self) -> None:
        """Mark the end of the turn. May be called twice."""
        self.closed = True
        self._wake()

    async def follow(self) -> AsyncGenerator[Speech | VideoFrame]:
        """Yield the turn from its start, block by block as they arrive, until it is closed or paused. Any number of
        readers.
        """
        read = 0
        while True:
            news = self._news
            while read < len(self._blocks[: self._end]):
                block = self._blocks[read]
                yield block.frame if isinstance(block, Shown) else block
                read += 1
            if self.closed or self.paused:
                return
            await news.wait()

    async def over(self) -> None:
        """Wait until the turn is closed."""
        while not self.closed:
            await self._news.wait()

    def _wake(self) -> None:
        """Wake all waiting readers."""
        self._news.set()
        self._news = asyncio.Event()


def _joined(blocks: Sequence[Speech | Shown]) -> Pcm:
    return np.concatenate([*(one.pcm for one in blocks if isinstance(one, Speech)), np.empty(0, np.int16)])
