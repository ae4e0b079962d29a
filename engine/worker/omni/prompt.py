"""The prompt that a thinker takes, and those of its rows that a talker takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.worker.omni.block import Block, PictureGrid


@dataclass(frozen=True, slots=True)
class TalkerRows:
    """The rows of a prompt that a talker takes: their ``indices`` among all, and for the talker's own decoder their
    ``positions`` float32 [3, rows] and ``names`` [rows]. ``lead`` are the ids with which its own turn begins."""

    indices: NDArray[np.int64]
    positions: NDArray[np.float32]
    names: NDArray[np.int64]
    lead: tuple[int, ...] = ()

    def within(self, piece: slice) -> slice:
        """Return which of these rows are in a piece of the prompt."""
        a, b = np.searchsorted(self.indices, (piece.start, piece.stop))
        return slice(int(a), int(b))

    @property
    def next_position(self) -> float:
        """The position behind the last row."""
        return float(self.positions.max()) + 1 if self.positions.size else 0.0


@dataclass(slots=True)
class Prompt:
    """A request as the thinker eats it, made off the step loop.

    ``positions`` float32 [3, ids] are rope's (time, height, width); ``talker`` are the rows that the talker takes.
    Where two prompts of a session have the same ``names`` up to some row (ids of words, and what stands for the content
    of the rest), they are the same up to there.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.float32]
    names: NDArray[np.int64]
    talker: TalkerRows
    blocks: tuple[Block, ...] = ()
    starts: tuple[int, ...] = ()
    """The row where each block begins."""
    script: list[int] | None = None
    whole: bool = True
    """Whether nothing more follows: not so while its last sound is still being spoken."""
    ahead: tuple[PictureGrid, ...] = ()
    """Pictures that came already, though their rows may not be known."""

    @property
    def media_end(self) -> int:
        """The row where the last block ends."""
        return self.starts[-1] + self.blocks[-1].num_positions if self.blocks else 0

    @property
    def num_final(self) -> int:
        """Rows that nothing can change: of a video that goes on, a stretch that has no sound yet may see more."""
        seeing = not self.whole and bool(self.blocks) and self.blocks[-1].mixed and not self.blocks[-1].sounds
        return self.starts[-1] if seeing else len(self.ids)
