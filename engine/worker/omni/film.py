"""A video with its sound, in stretches that know nothing of each other: a window of the sound, and its frames.

Frames lie in slots of ``1 / fps`` seconds, of which the first one counts. Two slots share a picture; one of which one
frame came shows that twice, and one of which none came is left out. Every picture is looked at by itself, so a stretch
is final once its window and its last picture are: a turn that is spoken and shown is encoded stretch by stretch. Of the
open stretch, what comes before its first sound is taken as it is, and taken anew where a picture gets its second frame;
what comes behind that is only looked at ahead. Knows no prompt and no encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.chunk import VideoFrame
from engine.core import MIC_RATE_HZ, CameraFeed
from engine.errors import RequestError
from engine.worker.omni.block import Block, PictureGrid, named
from engine.worker.omni.positions import RopePositions
from engine.worker.omni.sound import StreamingMel

Pixels = NDArray[np.uint8]
_SILENT = Block(0)
Look = Callable[[int, Pixels], PictureGrid]
"""A name, and two frames [2, height, width, 3], or one that is shown twice, to the picture of that name."""

CAMERA = CameraFeed(fps=2.0, side=480, most=64)
"""Two frames a second, as the reference samples videos. 480×360 pixels are some 165 rows a second, more than the least
that the reference makes of a frame (128); 64 frames fill two thirds of a context of 8192."""

TWO = 2  # frames of a picture: the checkpoints' temporal_patch_size


class Film:
    """The frames of a video by their slots, and the stretches that are done.

    A window of the sound counts ``per_window`` positions.
    """

    def __init__(self, fps: float, positions: RopePositions, per_window: int, look: Look) -> None:
        self.fps = fps
        self._positions = positions
        self._per_window = per_window
        self._look = look
        self._slots: dict[int, Pixels] = {}
        self._pictures: dict[int, PictureGrid] = {}
        self._done: list[Block] = []

    def add(self, pixels: Pixels, slot: int) -> bool:
        """Take a frame, unless its slot has one; none is put into a stretch that is done. Whether it was taken.

        Raises RequestError for one of another size.
        """
        if self._slots and pixels.shape != (first := next(iter(self._slots.values())).shape):
            raise RequestError(
                f"video: a frame of shape {list(pixels.shape)} among others of {list(first)}; all have one size"
            )
        while self._time(slot // TWO) < len(self._done) * self._per_window:
            slot += 1
        if slot in self._slots:
            return False
        self._slots[slot] = pixels
        self._pictures.pop(slot // TWO, None)
        return True

    def final(self, seconds: float) -> int:
        """Count the stretches to which no frame can be added behind so many seconds."""
        over = int(seconds * self.fps) // TWO
        return int(self._time(over) // self._per_window)

    def stretches(self, windows: Sequence[Block], whole: bool) -> tuple[Block, ...]:
        """Return the stretches of the sound's first windows; of the ``whole``, the last one has all that is left."""
        new = range(len(self._done), len(windows))
        for number in new:
            end = math.inf if whole and number == len(windows) - 1 else (number + 1) * self._per_window
            self._done.append(self._stretch(windows[number], end))
        if whole and not new and (rest := self.ahead()).cells:  # the sound's end was too short for a row
            self._done.append(rest)
        return tuple(self._done)

    def ahead(self) -> Block:
        """Return what is seen behind the stretches that are done, without a sound."""
        return self._stretch(_SILENT, math.inf)

    def leading(self) -> Block:
        """Return what of that comes before the next sound, whatever that is: its rows are known."""
        seen = self.ahead()
        first = int(replace(seen, sounds=1).order.argmax())  # the sound is behind all cells, before it is ordered
        count = first * len(seen.pictures) // max(1, seen.cells)
        return self._stretch(_SILENT, seen.times[count]) if count < len(seen.pictures) else seen

    def _stretch(self, window: Block, end: float) -> Block:
        """The next stretch, up to a position in time."""
        start = len(self._done) * self._per_window
        numbers = sorted({slot // TWO for slot in self._slots if start <= self._time(slot // TWO) < end})
        before = sum(block.num_positions for block in self._done)
        stretch = replace(window, times=(), chunk=self._positions.chunk, start=start, before=before, mixed=True)
        return stretch.seeing([self._picture(number) for number in numbers], [self._time(n) for n in numbers])

    def _picture(self, number: int) -> PictureGrid:
        if number not in self._pictures:
            slots = range(number * TWO, (number + 1) * TWO)
            frames = np.stack([self._slots[slot] for slot in slots if slot in self._slots])
            self._pictures[number] = self._look(named("film", frames, np.array(number), fps=self.fps), frames)
        return self._pictures[number]

    def _time(self, number: int) -> float:
        """Return a picture's position in time."""
        return self._positions.time(number, TWO / self.fps)


class StreamingFilm:
    """A turn that is still spoken and shown. ``windows`` are known, ``whole`` is all of it once it is over."""

    def __init__(self, sound: StreamingMel, film: Film) -> None:
        self._sound = sound
        self._film = film
        self._given = 0

    @property
    def samples(self) -> int:
        return self._sound.samples

    def add_frame(self, frame: VideoFrame) -> bool:
        """Take a frame, at its time as far as that has come; whether it counts. Raises RequestError for one that cannot
        be seen."""
        if not 0 <= frame.at_s < math.inf or frame.pixels.ndim != 3 or frame.pixels.shape[2] != 3:
            raise RequestError(
                f"video: a frame of shape {list(frame.pixels.shape)} at {frame.at_s} s cannot be seen (height, width, "
                "3 colours; seconds from the turn's first sample)"
            )
        at_s = min(frame.at_s, self.samples / MIC_RATE_HZ)
        return self._film.add(frame.pixels, int(at_s * self._film.fps))

    def push(self, pcm: NDArray[np.int16]) -> bool:
        """Append int16 [n]; whether a stretch has become final."""
        self._sound.push(pcm)
        return self._final > self._given

    @property
    def _final(self) -> int:
        return min(self._sound.final, self._film.final(self.samples / MIC_RATE_HZ))

    def windows(self) -> tuple[Block, ...]:
        """Return the stretches that are final, and behind them what is known of the open one's rows, if anything."""
        self._given = self._final
        final = self._film.stretches(self._sound.windows()[: self._given], whole=False)
        leading = self._film.leading()
        return (*final, leading) if leading.cells else final

    def ahead(self) -> tuple[PictureGrid, ...]:
        """Return the pictures of the open stretch: the rows of some of them may not be known."""
        return self._film.ahead().pictures

    def whole(self, silence: int = 0) -> tuple[Block, ...]:
        """All of it, the end as it is heard before so many samples of ``silence``. Raises RequestError."""
        return self._film.stretches(self._sound.whole(silence), whole=True)
