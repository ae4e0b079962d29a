"""Rope positions of a prompt: words and sounds count on; what is seen spans its grid, at its time. Computes nothing
else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.worker.omni.block import Block
from engine.worker.omni.special_tokens import SpecialTokens

Positions = NDArray[np.float32]


class RopePositions:
    """The rule of a family, by which rows get their positions (time, height, width).

    A second of a video counts ``per_second`` positions. A video and its sound take turns cell by cell and row by row,
    or in chunks of ``chunk`` positions (0: one by one).
    """

    def __init__(self, marks: SpecialTokens, per_second: float, chunk: float = 0.0) -> None:
        self.marks = marks
        self.per_second = per_second
        self.chunk = chunk

    def times(self, steps: int, step_s: float) -> tuple[float, ...]:
        """Return the position in time of each step of what is seen, from 0."""
        return tuple(self.time(step, step_s) for step in range(steps))

    def time(self, step: int, step_s: float) -> float:
        """Return the position in time of one step."""
        return float(np.float32(step) * (np.float32(step_s) * np.float32(self.per_second)))

    def __call__(self, ids: Sequence[int], blocks: Sequence[Block]) -> Positions:
        """Return positions float32 [3, ids].

        After a video with its sound, positions go on from whichever of the two comes last in the prompt.
        """
        if not blocks:
            return counted(len(ids))
        media, left = self.marks.media, list(blocks)
        columns: list[Positions] = []
        at, origin, i, before = 0.0, 0.0, 0, None
        while i < len(ids):
            if ids[i] in media:
                before = left.pop(0)
                end = i + before.num_positions
                found, last = self.spanned(before, ids, end)
                at = origin = origin if before.before else at
            else:
                end = next((n for n in range(i, len(ids)) if ids[n] in media), len(ids))
                last = found = self.text(end - i, before, left[0] if end < len(ids) else None)
            columns.append(found + np.float32(at))
            at, i = float((last + np.float32(at)).max()) + 1, end
        return np.concatenate(columns, 1) if columns else np.zeros((3, 0), np.float32)

    def text(self, count: int, before: Block | None, behind: Block | None) -> Positions:
        """Return the positions of words between two blocks, from 0."""
        return counted(count)

    def spanned(self, block: Block, ids: Sequence[int], end: int) -> tuple[Positions, Positions]:
        """Return the positions of a block that ends at a row, as if it were the first; and of them those of the part
        that comes last in it."""
        if not block.sounds:
            return block.visual_positions, block.visual_positions
        if not block.cells:
            return block.audio_positions, block.audio_positions
        found = np.concatenate((block.visual_positions, block.audio_positions), 1)[:, block.order]
        length = next(n for n in range(1, block.num_positions) if ids[end - 1 - n] != ids[end - 1])
        return found, found[:, -length:]


def counted(count: int) -> Positions:
    """Return the positions of so many words, from 0."""
    return np.repeat(np.arange(count, dtype=np.float32)[None], 3, 0)
