"""A picture, a video or a window of audio, and its rows in a prompt."""

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
    """The pixels of a picture, or of two video frames that share their patches."""

    name: int
    """Hash of the content."""
    pixels: Tensor
    """[patches, values]."""
    patches: tuple[int, int]
    """The number of patches (height, width)."""
    merge: int
    """A cell has ``merge`` by ``merge`` patches. Each cell becomes one row of the prompt."""

    @property
    def grid(self) -> tuple[int, int]:
        """The number of cells (height, width)."""
        return self.patches[0] // self.merge, self.patches[1] // self.merge


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The consecutive rows of a prompt for one picture, one video, or one window of audio.

    If a block has both audio and cells, they are interleaved by time. A video with audio is cut into consecutive
    ``mixed`` blocks.
    """

    name: int
    """Hash of the audio."""
    sounds: int = 0
    """The number of audio rows."""
    mel: Tensor | None = None
    """Input of the audio encoder: [mels, frames]."""
    grid: tuple[int, int, int] = (0, 0, 0)
    """The cells: (time, height, width)."""
    pictures: tuple[PictureGrid, ...] = ()
    """Input of the vision encoder: one picture per time step."""
    times: tuple[float, ...] = (0.0,)
    """The position in time of each step of ``grid``."""
    chunk: float = 0.0
    """Positions per interleaved chunk; 0: rows are interleaved one by one."""
    start: float = 0.0
    """The position in time at which the audio of this block begins."""
    before: int = 0
    """The number of rows of the earlier blocks of this video."""
    mixed: bool = False
    """Whether the block is part of a video with audio."""

    def seeing(self, pictures: Sequence[PictureGrid], times: Sequence[float]) -> Block:
        """Return the block with pictures of one size, each at its position in time; unchanged without any."""
        if not pictures:
            return self
        return replace(self, grid=(len(pictures), *pictures[0].grid), pictures=tuple(pictures), times=tuple(times))

    @property
    def size(self) -> int:
        """Bytes of encoder input."""
        return sum(one.pixels.nbytes for one in self.pictures) + (0 if self.mel is None else self.mel.nbytes)

    @property
    def cells(self) -> int:
        """The number of visual rows."""
        return math.prod(self.grid)

    @property
    def num_positions(self) -> int:
        return self.sounds + self.cells

    @property
    def visual_positions(self) -> NDArray[np.float32]:
        """Positions [3, cells] of the cells, from 0: time, height and width."""
        cells = np.indices(self.grid, np.float32).reshape(3, -1)
        cells[0] = np.repeat(np.array(self.times, np.float32), self.grid[1] * self.grid[2])
        return cells

    @property
    def audio_positions(self) -> NDArray[np.float32]:
        counted = np.arange(self.sounds, dtype=np.float32) + np.float32(self.start)
        return np.broadcast_to(counted, (3, self.sounds))

    @property
    def order(self) -> NDArray[np.int64]:
        """Return the interleaved order by time, as indices into all cells followed by all audio rows."""
        visual, audio = self.visual_positions[0] - self.start, self.audio_positions[0] - self.start
        if self.chunk:
            visual, audio = _numbers(visual, self.chunk), _numbers(audio, self.chunk)
        return np.argsort(np.concatenate((visual, audio)), kind="stable")

    @property
    def audio_indices(self) -> NDArray[np.int64]:
        """Return the indices of the audio rows."""
        return np.flatnonzero(self.order >= self.cells)

    @property
    def visual_indices(self) -> list[NDArray[np.int64]]:
        """Return for each picture the indices of its rows."""
        indices = np.flatnonzero(self.order < self.cells)
        return np.split(indices, len(self.pictures)) if self.pictures else []

    @property
    def names(self) -> NDArray[np.int64]:
        """Return a negative name for each row. Two prompts share computed rows up to their first different name."""
        counts = [math.prod(self.grid[1:])] * len(self.pictures) + [self.sounds]
        firsts = [*(one.name for one in self.pictures), self.name]
        numbers = [first + np.arange(count) for first, count in zip(firsts, counts, strict=True)]
        return -1 - np.concatenate(numbers)[self.order]


def _numbers(times: NDArray[np.float32], chunk: float) -> NDArray[np.float32]:
    """Return the chunk number of each row. As in the reference, it rises by at most one from row to row."""
    number, numbers = 0, list[int]()
    for time in times.tolist():
        number += time >= (number + 1) * chunk
        numbers.append(number)
    return np.array(numbers, np.float32)


def named(kind: str, *contents: Any, fps: float = 0) -> int:
    """Return a 62-bit hash of arrays; None is skipped."""
    digest = hashlib.blake2b(kind.encode(), digest_size=8)
    for content in contents:
        if content is not None:
            array = np.ascontiguousarray(content)
            digest.update(repr((array.shape, fps)).encode())
            digest.update(array.data)
    return int.from_bytes(digest.digest()) >> 2
