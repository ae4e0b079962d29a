"""A video with its sound, in stretches that know nothing of each other: a window of the sound, and its frames.

Two frames share a patch, and every patch is looked at by itself, so a stretch is final once its window and its last
patch are: a turn that is spoken and shown is encoded stretch by stretch. Frames lie in slots of ``1 / fps`` seconds, of
which the newest counts; a patch of which one frame came shows that twice, and one of which none came is left out. Knows
no prompt and no encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import VideoFrame
from engine.core import MIC_RATE_HZ, CameraFeed
from engine.errors import RequestError
from engine.worker.omni.block import Block, named
from engine.worker.omni.positions import RopePositions
from engine.worker.omni.sound import StreamingMel

Pixels = NDArray[np.uint8]
Look = Callable[[Pixels], tuple[Tensor, tuple[int, ...]]]
"""Frames [frames, height, width, 3] to patches [patches, values] and their grid (time, height, width)."""

CAMERA = CameraFeed(fps=2.0, side=480, most=64)
"""Two frames a second, as the reference samples videos. 480×360 pixels are some 165 rows a second, more than the least
that the reference makes of a frame (128); 64 frames fill two thirds of a context of 8192."""

TWO = 2  # frames of a patch: the checkpoints' temporal_patch_size


class Film:
    """The frames of a video by their slots, and the stretches that are done.

    A window of the sound counts ``per_window`` positions. ``look`` makes patches of frames, ``merge`` by ``merge`` of
    which are a cell.
    """

    def __init__(self, fps: float, positions: RopePositions, per_window: int, look: Look, merge: int) -> None:
        self.fps, self._positions, self._per_window, self._look, self._merge = fps, positions, per_window, look, merge
        self._slots: dict[int, Pixels] = {}
        self._done: list[Block] = []

    def add(self, pixels: Pixels, slot: int) -> None:
        """Take a frame; the newest of a slot counts, and none is put into a stretch that is done.

        Raises RequestError for one of another size.
        """
        if self._slots and pixels.shape != (first := next(iter(self._slots.values())).shape):
            raise RequestError(
                f"video: a frame of shape {list(pixels.shape)} among others of {list(first)}; all have one size"
            )
        while self._time(slot // TWO) < len(self._done) * self._per_window:
            slot += 1
        self._slots[slot] = pixels

    def final(self, seconds: float) -> int:
        """Count the stretches to which no frame can be added behind so many seconds."""
        over = int(seconds * self.fps) // TWO
        return int(self._time(over) // self._per_window)

    def stretches(self, windows: Sequence[Block], whole: bool) -> tuple[Block, ...]:
        """Return the stretches of the sound's first windows; of the ``whole``, the last one has all that is left."""
        for number in range(len(self._done), len(windows)):
            end = math.inf if whole and number == len(windows) - 1 else (number + 1) * self._per_window
            self._done.append(self._stretch(windows[number], number * self._per_window, end))
        return tuple(self._done)

    def _stretch(self, window: Block, start: int, end: float) -> Block:
        patches = sorted({slot // TWO for slot in self._slots if start <= self._time(slot // TWO) < end})
        before = sum(block.num_positions for block in self._done)
        times, chunk = tuple(map(self._time, patches)), self._positions.chunk
        stretch = Block(
            window.name, window.sounds, window.mel, (0, 0, 0), None, (0, 0, 0), times, chunk, start, before, mixed=True
        )
        if not patches:
            return stretch
        frames = np.stack([frame for patch in patches for frame in self._frames(patch)])
        pixels, grid = self._look(frames)
        name = named("film", frames, np.array(patches), fps=self.fps)
        return stretch.seeing(name, pixels, grid, (grid[0], grid[1] // self._merge, grid[2] // self._merge))

    def _frames(self, patch: int) -> list[Pixels]:
        found = [self._slots[slot] for slot in range(patch * TWO, (patch + 1) * TWO) if slot in self._slots]
        return [found[0], found[-1]]

    def _time(self, patch: int) -> float:
        """Return a patch's position in time."""
        return self._positions.time(patch, TWO / self.fps)


class StreamingFilm:
    """A turn that is still spoken and shown. ``windows`` are final, ``whole`` is all of it once it is over."""

    def __init__(self, sound: StreamingMel, film: Film) -> None:
        self._sound, self._film = sound, film
        self._given = 0

    @property
    def samples(self) -> int:
        return self._sound.samples

    def add_frame(self, frame: VideoFrame) -> None:
        """Take a frame, at its time as far as that has come. Raises RequestError for one that cannot be seen."""
        if not 0 <= frame.at_s < math.inf or frame.pixels.ndim != 3 or frame.pixels.shape[2] != 3:
            raise RequestError(
                f"video: a frame of shape {list(frame.pixels.shape)} at {frame.at_s} s cannot be seen (height, width, "
                "3 colours; seconds from the turn's first sample)"
            )
        at_s = min(frame.at_s, self.samples / MIC_RATE_HZ)
        self._film.add(frame.pixels, int(at_s * self._film.fps))

    def push(self, pcm: NDArray[np.int16]) -> bool:
        """Append int16 [n]; whether a stretch has become final."""
        self._sound.push(pcm)
        return self._final > self._given

    @property
    def _final(self) -> int:
        return min(self._sound.final, self._film.final(self.samples / MIC_RATE_HZ))

    def windows(self) -> tuple[Block, ...]:
        """Return the stretches that are final."""
        self._given = self._final
        return self._film.stretches(self._sound.windows()[: self._given], whole=False)

    def whole(self, silence: int = 0) -> tuple[Block, ...]:
        """All of it, the end as it is heard before so many samples of ``silence``. Raises RequestError."""
        return self._film.stretches(self._sound.whole(silence), whole=True)
