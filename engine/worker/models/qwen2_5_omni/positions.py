"""Rope positions of Qwen2.5-Omni prompts."""

from __future__ import annotations

import numpy as np

from engine.worker.omni.block import Block
from engine.worker.omni.positions import Positions, RopePositions, counted


class PairedPositions(RopePositions):
    """Integer time positions. The two special tokens on each side of a video with audio share one position."""

    def time(self, step: int, step_s: float) -> float:
        seconds = np.float32(step) * np.float32(step_s)  # rounds in the same order as the reference
        return float(np.floor(seconds * np.float32(self.per_second)))

    def text(self, count: int, before: Block | None, behind: Block | None) -> Positions:
        found = counted(count)
        if _mixed(before):
            found[:, 1:] -= 1
        if _mixed(behind):
            found[:, -1] -= 1
        return found


def _mixed(block: Block | None) -> bool:
    return block is not None and block.mixed
