"""A video with audio, cut into independent segments: an audio window with its frames.

Frames are sorted into slots of ``1 / fps`` seconds; the first frame in a slot counts. Two slots form a frame pair, the
encoder's ``PictureGrid``. If one slot is empty, the other frame is used twice. If both are empty, there is no pair.
Pairs are encoded independently, so a segment is final once its audio window and its last pair are final. A turn is
therefore encoded segment by segment while the user speaks.

The open segment follows the final ones. The pairs before its first audio row are already part of the prompt, and are
encoded again when a pair gets its second frame. Later pairs of that segment are only encoded early.
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
"""Returns the patches of a frame pair from its name and frames [n, height, width, 3]. A single frame is used twice."""

CAMERA = CameraFeed(fps=2.0, side=480, most=64)
"""The reference samples videos at two frames a second.

480×360 pixels give about 165 rows a second, above the reference's minimum of 128 per frame. 64 frames fill two thirds
of a context of 8192.
"""

TWO = 2  # frames of a pair: the checkpoints' temporal_patch_size


class Film:
    """The frames of a video by slot, and its final segments. An audio window spans ``per_window`` positions."""

    def __init__(self, fps: float, positions: RopePositions, per_window: int, look: Look) -> None:
        self.fps = fps
        self._positions = positions
        self._per_window = per_window
        self._look = look
        self._slots: dict[int, Pixels] = {}
        self._pictures: dict[int, PictureGrid] = {}
        self._done: list[Block] = []

    def add(self, pixels: Pixels, slot: int) -> bool:
        """Add a frame, unless its slot has one. Frames of a final segment move to the first open slot.

        Returns:
            Whether the frame was added.

        Raises:
            RequestError: The frame has another size than the other frames.
        """
        if self._slots and pixels.shape != (first := next(iter(self._slots.values())).shape):
            raise RequestError(f"video: a frame has shape {list(pixels.shape)}, the others {list(first)}; use one size")
        while self._time(slot // TWO) < len(self._done) * self._per_window:
            slot += 1
        if slot in self._slots:
            return False
        self._slots[slot] = pixels
        self._pictures.pop(slot // TWO, None)
        return True

    def final(self, seconds: float) -> int:
        """Return the number of segments to which no frame after ``seconds`` can be added."""
        over = int(seconds * self.fps) // TWO
        return int(self._time(over) // self._per_window)

    def segments(self, windows: Sequence[Block], whole: bool) -> tuple[Block, ...]:
        """Return the segments of the first audio windows. If ``whole``, the last one gets all remaining frames."""
        new = range(len(self._done), len(windows))
        for number in new:
            end = math.inf if whole and number == len(windows) - 1 else (number + 1) * self._per_window
            self._done.append(self._segment(windows[number], end))
        if whole and not new and (rest := self.ahead()).cells:  # the end of the audio was too short for a row
            self._done.append(rest)
        return tuple(self._done)

    def ahead(self) -> Block:
        """Return the frame pairs after the last final segment, as one block without audio."""
        return self._segment(_SILENT, math.inf)

    def leading(self) -> Block:
        """Return the ``ahead`` frame pairs before the next audio row: their positions in the prompt are known."""
        seen = self.ahead()
        first = int(replace(seen, sounds=1).order.argmax())  # the audio row is the last one before sorting
        count = first * len(seen.pictures) // max(1, seen.cells)
        return self._segment(_SILENT, seen.times[count]) if count < len(seen.pictures) else seen

    def _segment(self, window: Block, end: float) -> Block:
        """Return the next segment, up to a position in time."""
        start = len(self._done) * self._per_window
        numbers = sorted({slot // TWO for slot in self._slots if start <= self._time(slot // TWO) < end})
        before = sum(block.num_positions for block in self._done)
        segment = replace(window, times=(), chunk=self._positions.chunk, start=start, before=before, mixed=True)
        return segment.seeing([self._picture(number) for number in numbers], [self._time(n) for n in numbers])

    def _picture(self, number: int) -> PictureGrid:
        if number not in self._pictures:
            slots = range(number * TWO, (number + 1) * TWO)
            frames = np.stack([self._slots[slot] for slot in slots if slot in self._slots])
            self._pictures[number] = self._look(named("film", frames, np.array(number), fps=self.fps), frames)
        return self._pictures[number]

    def _time(self, number: int) -> float:
        """Return a frame pair's position in time."""
        return self._positions.time(number, TWO / self.fps)


class StreamingFilm:
    """A turn with camera frames while the user still speaks."""

    def __init__(self, sound: StreamingMel, film: Film) -> None:
        self._sound = sound
        self._film = film
        self._given = 0

    @property
    def samples(self) -> int:
        return self._sound.samples

    def add_frame(self, frame: VideoFrame) -> bool:
        """Add a frame at its time, or at the end of the audio so far if that is earlier.

        Returns:
            Whether the frame was added.

        Raises:
            RequestError: The frame is invalid.
        """
        if not 0 <= frame.at_s < math.inf or frame.pixels.ndim != 3 or frame.pixels.shape[2] != 3:
            raise RequestError(
                f"video: a frame of shape {list(frame.pixels.shape)} at {frame.at_s} s cannot be seen (height, width, "
                "3 colours; seconds from the turn's first sample)"
            )
        at_s = min(frame.at_s, self.samples / MIC_RATE_HZ)
        return self._film.add(frame.pixels, int(at_s * self._film.fps))

    def push(self, pcm: NDArray[np.int16]) -> bool:
        """Append int16 [n]. Return whether another segment has become final."""
        self._sound.push(pcm)
        return self._final > self._given

    @property
    def _final(self) -> int:
        return min(self._sound.final, self._film.final(self.samples / MIC_RATE_HZ))

    def windows(self) -> tuple[Block, ...]:
        """Return the final segments, followed by the known rows of the open segment, if any."""
        self._given = self._final
        final = self._film.segments(self._sound.windows()[: self._given], whole=False)
        leading = self._film.leading()
        return (*final, leading) if leading.cells else final

    def ahead(self) -> tuple[PictureGrid, ...]:
        """Return the frame pairs of the open segment. The rows of some may not be known yet."""
        return self._film.ahead().pictures

    def whole(self, silence: int = 0) -> tuple[Block, ...]:
        """Return the whole turn, followed by ``silence`` samples of silence. Raises RequestError."""
        return self._film.segments(self._sound.whole(silence), whole=True)
