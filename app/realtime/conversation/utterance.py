"""The turn that the user is speaking, as it grows: the input fills it, a request to the engine follows it.

Counted in samples at MIC_RATE_HZ. Knows no wire format, no clock and no engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np

from app.ids import new_id
from app.realtime.protocol import MessageItem, Picture
from app.refusal import Refusal
from engine import MIC_RATE_HZ, Speech
from engine.core import Pcm


class Utterance:
    """One utterance, as it grows. It becomes the item ``item_id`` once it is committed."""

    def __init__(self, limit_samples: int) -> None:
        self.item_id = new_id("item")
        self.samples = 0
        self.closed = False
        self.words = ""
        """All that was said up to the present pause, once ears have heard it: half of it would look unfinished."""
        self.whole: bool | None = None
        """Whether those words are all of a request, where the ears can say."""
        self.silence_ms: float | None = None
        """Milliseconds that its speaker had been silent when it was found to be over; None where that was not found."""
        self.pictures: tuple[Picture, ...] = ()
        """The camera's pictures meanwhile, oldest first."""
        self._limit = limit_samples
        self._blocks: list[Pcm] = []
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
        return np.concatenate([*self._blocks[: self._end], np.empty(0, np.int16)])

    @property
    def seconds(self) -> float:
        return self.samples / MIC_RATE_HZ

    @property
    def picture_items(self) -> tuple[MessageItem, ...]:
        """The pictures alone, as the item of which the speech is still to come; nothing without any."""
        return (MessageItem(id=self.item_id, role="user", content=self.pictures),) if self.pictures else ()

    @property
    def pcm(self) -> Pcm:
        """int16 [samples] of the whole turn so far."""
        return np.concatenate([*self._blocks, np.empty(0, np.int16)])

    def push(self, pcm: Pcm) -> None:
        """Append int16 [n]. Raises Refusal past the limit; then nothing was taken."""
        self.check_room(len(pcm))
        if len(pcm):
            self.samples += len(pcm)
            self._blocks.append(pcm)
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
        self._end, self.words, self.whole, self._so_far = None, "", None, ""

    def understand(self, words: str, final: bool, whole: bool | None) -> None:
        """Take the ears' words: while they listen, or all of them. Where they are no request, ``words`` is ""."""
        if final:
            self.words, self.whole, self._so_far = words if whole is not False else self._so_far, whole, ""
        else:
            self._so_far = words

    def close(self) -> None:
        """The user has finished. May be called twice."""
        self.closed = True
        self._wake()

    async def follow(self) -> AsyncGenerator[Speech]:
        """The turn from its beginning, block by block as they come, until it is closed or paused. For many readers."""
        read = 0
        while True:
            news = self._news
            while read < len(self._blocks[: self._end]):
                yield Speech(self._blocks[read])
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
