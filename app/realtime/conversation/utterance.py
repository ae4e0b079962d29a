"""The turn that the user is speaking and showing, as it grows: the input fills it, a request to the engine follows it.

Counted in samples at MIC_RATE_HZ. Knows no wire format, no clock and no engine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import numpy as np

from app.ids import new_id
from app.media.images import fitted
from app.realtime.protocol import CameraFrame, Content, MessageImage, MessageVideo, UserAudio
from app.refusal import Refusal
from engine import MIC_RATE_HZ, CameraFeed, Speech, VideoFrame
from engine.core import Pcm

EARLY = 0.9
"""The part of the time between two frames after which the next is taken: they come a little sooner or later."""

PICTURES_ONLY = CameraFeed()

NOTHING = Speech(np.zeros(0, np.int16))
"""A block that stands where a picture was, once there are newer ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A frame of the camera in a turn, and the data URI that it came as."""

    frame: VideoFrame
    url: str


class Utterance:
    """One utterance, as it grows. It becomes the item ``item_id`` once it is committed.

    ``camera`` is what the model takes of what is shown meanwhile: as one ``film`` with the speech, or as pictures.
    ``start`` is the position of its first sample in the session.
    """

    def __init__(
        self, limit_samples: int, camera: CameraFeed = PICTURES_ONLY, film: bool = False, start: int = 0
    ) -> None:
        self.item_id = new_id("item")
        self.start = start
        self.samples = 0
        self.closed = False
        self.words = ""
        """All that was said up to the present pause, once ears have heard it: half of it would look unfinished."""
        self.whole: bool | None = None
        """Whether those words are all of a request, where the ears can say."""
        self.confident: bool | None = None
        """Whether the ears are sure of them; None before they have heard all up to the present pause."""
        self.final_words = ""
        """The words that the ears came to in the end, sure or not, a request or not."""
        self.silence_ms: float | None = None
        """Milliseconds that its speaker had been silent when it was found to be over; None where that was not found."""
        self.over_probability: float | None = None
        """The end-of-turn model's probability that it was over when it ended; None where no such model ended it."""
        self._limit = limit_samples
        self._camera = camera
        self._film = film
        self._blocks: list[Speech | Shown] = []
        self._shown: deque[int] = deque()  # which of them are frames
        self._next_frame = 0  # samples behind which the film takes one more
        self._size: tuple[int, int] | None = None  # height and width of the film
        self._so_far = ""  # the ears' words while they listen
        self._end: int | None = None  # the number of blocks when the user may have finished
        self._news = asyncio.Event()

    @property
    def so_far(self) -> str:
        """Return what was said, as far as it is known: all of it up to the present pause, or what ears make of it by
        now."""
        return self.words or self._so_far

    @property
    def listening(self) -> bool:
        """Whether ears have understood words in it, and more of them are to come."""
        return bool(self._so_far)

    @property
    def paused(self) -> bool:
        """Whether the user may have finished: every reader of the turn sees its end."""
        return self._end is not None

    @property
    def speech(self) -> Pcm:
        """int16 [samples] as the readers of the turn get them: without the silence after a pause."""
        return _joined(self._blocks[: self._end])

    @property
    def seconds(self) -> float:
        return self.samples / MIC_RATE_HZ

    @property
    def watched(self) -> bool:
        """Whether it is a film: the prompt of one begins otherwise than that of speech alone."""
        return self._film and bool(self._shown)

    @property
    def content(self) -> tuple[Content, ...]:
        """Return what was shown, and the speech, as the readers of the turn get them."""
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
        """int16 [samples] of the whole turn so far."""
        return _joined(self._blocks)

    def push(self, pcm: Pcm) -> None:
        """Append int16 [n]. Raises Refusal past the limit; then nothing was taken."""
        self.check_room(len(pcm))
        if len(pcm):
            self.samples += len(pcm)
            self._blocks.append(Speech(pcm))
            self._wake()

    def add_frame(self, frame: CameraFrame, position: int) -> None:
        """Append a frame of the camera, which came at that position of the session.

        The fuller a film is, the longer it waits for its next frame: so a long turn has frames of all of its time. Of
        pictures the newest are kept.
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
        """Raises Refusal if so many more are past the limit."""
        if self.samples + samples > self._limit:
            limit_s = self._limit // MIC_RATE_HZ
            raise Refusal(
                "input_audio_buffer_full", f"The buffer holds {limit_s} s of audio: commit or clear it.", "audio"
            )

    def pause(self) -> None:
        """The user may have finished: every reader sees the end. If the user resumes, readers start anew."""
        self._end = len(self._blocks)
        self._wake()

    def resume(self) -> None:
        """The user goes on."""
        self._end = None
        self.words = ""
        self.final_words = ""
        self.whole = None
        self.confident = None
        self._so_far = ""

    def understand(self, words: str, final: bool, whole: bool | None, confident: bool = True) -> None:
        """Take the ears' words: while they listen, or all of them. Where they are no request, ``words`` is ""."""
        if final:
            self.confident = confident
            self.final_words = words
            self.words = words if whole is not False else self._so_far
            self.whole = whole
            self._so_far = ""
        else:
            self._so_far = words

    def close(self) -> None:
        """The user has finished. May be called twice."""
        self.closed = True
        self._wake()

    async def follow(self) -> AsyncGenerator[Speech | VideoFrame]:
        """The turn from its beginning, block by block as they come, until it is closed or paused. For many readers."""
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
        """Wait until the user has finished."""
        while not self.closed:
            await self._news.wait()

    def _wake(self) -> None:
        """Wake everyone who waits for news; those who come later wait for the next."""
        self._news.set()
        self._news = asyncio.Event()


def _joined(blocks: Sequence[Speech | Shown]) -> Pcm:
    return np.concatenate([*(one.pcm for one in blocks if isinstance(one, Speech)), np.empty(0, np.int16)])
