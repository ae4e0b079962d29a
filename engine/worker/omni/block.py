"""One thing that is heard or seen, and its rows in a prompt. Knows no encoder and no template."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PictureGrid:
    """Pixels [patches, values] on a grid of ``patches`` (height, width): a picture, or two frames that share patches.

    ``name`` tells one content from another; ``merge`` by ``merge`` patches are a cell.
    """

    name: int
    pixels: Tensor
    patches: tuple[int, int]
    merge: int

    @property
    def grid(self) -> tuple[int, int]:
        """Cells (height, width)."""
        return self.patches[0] // self.merge, self.patches[1] // self.merge


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A picture, a video, or a window of a sound, and its rows in a prompt.

    ``sounds`` rows are heard, a grid of (time, height, width) is seen, each step of it at its position in ``times``.
    Where both are there, they take turns in chunks of ``chunk`` positions (0: one by one). ``mel`` [mels, frames] and
    ``pictures``, one a step, are what the encoders eat; ``name`` tells one sound from another.

    A video with its sound is ``mixed``, in stretches one behind the other: ``start`` is the position at which the sound
    of this one begins, ``before`` are the rows of those before it.
    """

    name: int
    sounds: int = 0
    mel: Tensor | None = None
    grid: tuple[int, int, int] = (0, 0, 0)
    pictures: tuple[PictureGrid, ...] = ()
    times: tuple[float, ...] = (0.0,)
    chunk: float = 0.0
    start: float = 0.0
    before: int = 0
    mixed: bool = False

    def seeing(self, pictures: Sequence[PictureGrid], times: Sequence[float]) -> Block:
        """Return the block with pictures of one size, each at its position in time; with none, it is as it was."""
        if not pictures:
            return self
        return replace(self, grid=(len(pictures), *pictures[0].grid), pictures=tuple(pictures), times=tuple(times))

    @property
    def size(self) -> int:
        """Bytes of features."""
        return sum(one.pixels.nbytes for one in self.pictures) + (0 if self.mel is None else self.mel.nbytes)

    @property
    def cells(self) -> int:
        """Rows that are seen."""
        return math.prod(self.grid)

    @property
    def num_positions(self) -> int:
        return self.sounds + self.cells

    @property
    def visual_positions(self) -> NDArray[np.float32]:
        """Positions [3, cells] of what is seen, from 0: a cell's time, height and width."""
        cells = np.indices(self.grid, np.float32).reshape(3, -1)
        cells[0] = np.repeat(np.array(self.times, np.float32), self.grid[1] * self.grid[2])
        return cells

    @property
    def audio_positions(self) -> NDArray[np.float32]:
        counted = np.arange(self.sounds, dtype=np.float32) + np.float32(self.start)
        return np.broadcast_to(counted, (3, self.sounds))

    @property
    def order(self) -> NDArray[np.int64]:
        """Return how cells and sounds take turns by their times, as indices of all cells and then all sounds."""
        visual, audio = self.visual_positions[0] - self.start, self.audio_positions[0] - self.start
        if self.chunk:
            visual, audio = _numbers(visual, self.chunk), _numbers(audio, self.chunk)
        return np.argsort(np.concatenate((visual, audio)), kind="stable")

    @property
    def audio_indices(self) -> NDArray[np.int64]:
        """Return which rows are a sound's."""
        return np.flatnonzero(self.order >= self.cells)

    @property
    def visual_indices(self) -> list[NDArray[np.int64]]:
        """Return for each picture which rows are its own."""
        indices = np.flatnonzero(self.order < self.cells)
        return np.split(indices, len(self.pictures)) if self.pictures else []

    @property
    def names(self) -> NDArray[np.int64]:
        """A name for every row, below 0: what was computed for one holds again where all names up to it are alike."""
        counts = [math.prod(self.grid[1:])] * len(self.pictures) + [self.sounds]
        firsts = [*(one.name for one in self.pictures), self.name]
        numbers = [first + np.arange(count) for first, count in zip(firsts, counts, strict=True)]
        return -1 - np.concatenate(numbers)[self.order]


def _numbers(times: NDArray[np.float32], chunk: float) -> NDArray[np.float32]:
    """The number of the chunk of each row. As the reference counts, a row is at most one chunk behind the last one."""
    number, numbers = 0, list[int]()
    for time in times.tolist():
        number += time >= (number + 1) * chunk
        numbers.append(number)
    return np.array(numbers, np.float32)


def named(kind: str, *contents: Any, fps: float = 0) -> int:
    """62 bits that stand for what arrays hold; None holds nothing."""
    digest = hashlib.blake2b(kind.encode(), digest_size=8)
    for content in contents:
        if content is not None:
            array = np.ascontiguousarray(content)
            digest.update(repr((array.shape, fps)).encode())
            digest.update(array.data)
    return int.from_bytes(digest.digest()) >> 2
