"""Helpers for stages of codec frames: the length of an answer, decoding windows, and the interval of checkpoints.

They are independent of the codec: its dimensions are parameters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, Codes
from engine.errors import StageFailed
from engine.stream import windows
from engine.worker.stage_request import StageRequest

C = TypeVar("C", bound=np.integer[Any])

LONGEST_S = 1e6
"""Upper bound of an answer's length in seconds: twelve days."""

STATE_FRAMES = 25
"""Codec frames between two checkpoints of a stage. At most this many are recomputed after a loss."""


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive codec frames that code2wav decodes at once."""

    codes: NDArray[np.int16]
    """int16 [frames, codebooks]."""
    marks: tuple[tuple[int, int], ...] = ()
    """The marks of their audio, as in ``Audio.marks``."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The dimensions of a codec."""

    count: int
    """The number of codebooks."""
    size: int
    """The number of vectors in each codebook."""
    frame_samples: int
    """Audio samples per frame."""

    async def windows(self, req: StageRequest, inputs: AsyncIterator[Chunk], first: int = 0) -> AsyncGenerator[Any]:
        """Yield Windows of the codec frames after the first ``first`` ones. ``req.pace`` determines their sizes.

        Raises StageFailed for invalid frames: on some devices, looking up a code outside its codebook would end the
        process.
        """
        async for frames in windows(inputs, req.pace.size, req.pace.hurry, first):
            yield Window(self._joined([frame.frames for frame in frames]), self.marks(frames, first))
            first += len(frames)

    def marks(self, frames: Sequence[Codes], first: int) -> tuple[tuple[int, int], ...]:
        """Return the marks of codec frames that follow ``first`` earlier ones."""
        return tuple((n * self.frame_samples, frame.text_end) for n, frame in enumerate(frames, first + 1))

    def _joined(self, frames: Sequence[NDArray[Any]]) -> NDArray[Any]:
        shapes = {frame.shape for frame in frames}
        if shapes != {(1, self.count)}:
            raise StageFailed(f"codec frames must be [1, {self.count}], not {', '.join(map(str, shapes))}")
        return within(np.concatenate(frames), self.size)


def within(codes: NDArray[C], size: int | NDArray[np.integer[Any]]) -> NDArray[C]:
    """Check that every code is an index into a codebook of ``size`` vectors (broadcast), and return the codes.

    Raises:
        StageFailed: A code is out of range.
    """
    if ((codes < 0) | (codes >= size)).any():
        raise StageFailed(f"codes must be from 0 to {np.max(size) - 1}, not {codes.min()} to {codes.max()}")
    return codes


def frames_of(seconds: float, frame_s: float) -> int:
    """Return the number of codec frames of a duration, at least 1."""
    return max(1, round(min(seconds, LONGEST_S) / frame_s))


def state_due(before: int, frames: int) -> bool:
    """Whether a stage should send a checkpoint now: it has made ``frames`` frames, and ``before`` one step earlier."""
    return before // STATE_FRAMES < frames // STATE_FRAMES
