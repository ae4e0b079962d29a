"""Rules that stages of codec frames share: how many an answer has, which are decoded at once, when state is left.

Knows no codec: how many books it has and how large they are is told.
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
"""No answer is longer: twelve days."""

STATE_FRAMES = 25
"""Codec frames between two states that a stage leaves: what is made again where a replica was lost is no more."""


@dataclass(frozen=True, slots=True)
class Window:
    """A code2wav's row: codec frames to be decoded at once, int16 [frames, codebooks], and the marks of their sound."""

    codes: NDArray[np.int16]
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Codec:
    """The code books of a codec: how many, how many vectors each has, and the samples that a frame becomes."""

    count: int
    size: int
    frame_samples: int

    async def windows(self, req: StageRequest, inputs: AsyncIterator[Chunk], first: int = 0) -> AsyncGenerator[Any]:
        """A code2wav's rows: codec frames behind the ``first`` ones, as many at a time as the listener can wait for.

        Raises StageFailed for what is no frame: looked up, a code beyond its book would end the process on some
        devices.
        """
        async for frames in windows(inputs, req.pace.size, req.pace.hurry, first):
            yield Window(self._joined([frame.frames for frame in frames]), self.marks(frames, first))
            first += len(frames)

    def marks(self, frames: Sequence[Codes], first: int) -> tuple[tuple[int, int], ...]:
        """Mark the voice's place in the text after each of the codec frames that follow ``first`` earlier ones."""
        return tuple((n * self.frame_samples, frame.text_end) for n, frame in enumerate(frames, first + 1))

    def _joined(self, frames: Sequence[NDArray[Any]]) -> NDArray[Any]:
        shapes = {frame.shape for frame in frames}
        if shapes != {(1, self.count)}:
            raise StageFailed(f"codec frames are [1, {self.count}], not {', '.join(map(str, shapes))}")
        return within(np.concatenate(frames), self.size)


def within(codes: NDArray[C], size: int | NDArray[np.integer[Any]]) -> NDArray[C]:
    """The same codes, each of which is in its book of ``size`` vectors; sizes of several books are broadcast.

    Raises StageFailed for a code that is not.
    """
    if ((codes < 0) | (codes >= size)).any():
        raise StageFailed(f"a code is not from 0 to {np.max(size) - 1}: {codes.min()} to {codes.max()}")
    return codes


def frames_of(seconds: float, frame_s: float) -> int:
    """Return how many codec frames last so long: one at least."""
    return max(1, round(min(seconds, LONGEST_S) / frame_s))


def state_due(before: int, frames: int) -> bool:
    """Whether a stage that has given ``frames``, and one step ago ``before``, is to leave its state now."""
    return before // STATE_FRAMES < frames // STATE_FRAMES
