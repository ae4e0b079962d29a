"""Rope positions of a prompt. Text and audio advance by one per row; pictures span their grid at their time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.worker.omni.block import Block
from engine.worker.omni.special_tokens import SpecialTokens

Positions = NDArray[np.float32]


class RopePositions:
    """A model family's rule for the positions (time, height, width) of rows.

    A second of video has ``per_second`` positions. A video and its audio are interleaved in chunks of ``chunk``
    positions, or, if ``chunk`` is 0, one by one.
    """

    def __init__(self, marks: SpecialTokens, per_second: float, chunk: float = 0.0) -> None:
        self.marks = marks
        self.per_second = per_second
        self.chunk = chunk

    def times(self, steps: int, step_s: float) -> tuple[float, ...]:
        """Return the position in time of each step, from 0."""
        return tuple(self.time(step, step_s) for step in range(steps))

    def time(self, step: int, step_s: float) -> float:
        """Return the position in time of one step."""
        return float(np.float32(step) * (np.float32(step_s) * np.float32(self.per_second)))

    def __call__(self, ids: Sequence[int], blocks: Sequence[Block]) -> Positions:
        """Return positions float32 [3, ids].

        Rows after a video with audio continue from the part, video or audio, to which the last row of the video
        belongs.
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
        """Return the positions of text between two blocks, from 0."""
        return counted(count)

    def spanned(self, block: Block, ids: Sequence[int], end: int) -> tuple[Positions, Positions]:
        """Return the positions of a block that ends at row ``end``, from 0, and the positions of its last part."""
        if not block.sounds:
            return block.visual_positions, block.visual_positions
        if not block.cells:
            return block.audio_positions, block.audio_positions
        found = np.concatenate((block.visual_positions, block.audio_positions), 1)[:, block.order]
        length = next(n for n in range(1, block.num_positions) if ids[end - 1 - n] != ids[end - 1])
        return found, found[:, -length:]


def counted(count: int) -> Positions:
    """Return the positions of ``count`` text rows, from 0."""
    return np.repeat(np.arange(count, dtype=np.float32)[None], 3, 0)
