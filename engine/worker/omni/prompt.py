"""The prompt of a thinker, and its rows for the talker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.worker.omni.block import Block, PictureGrid


@dataclass(frozen=True, slots=True)
class TalkerRows:
    """The rows of a prompt that the talker receives."""

    indices: NDArray[np.int64]
    """[rows] indices of these rows in the prompt."""
    positions: NDArray[np.float32]
    """float32 [3, rows] rope positions for the talker's decoder."""
    names: NDArray[np.int64]
    """[rows] names of the rows, as in ``Prompt.names``."""
    lead: tuple[int, ...] = ()
    """The token ids that begin the talker's own turn."""

    def within(self, piece: slice) -> slice:
        """Return the slice of these rows that lies in a piece of the prompt."""
        a, b = np.searchsorted(self.indices, (piece.start, piece.stop))
        return slice(int(a), int(b))

    @property
    def next_position(self) -> float:
        """The position after the last row."""
        return float(self.positions.max()) + 1 if self.positions.size else 0.0


@dataclass(slots=True)
class Prompt:
    """A request as the thinker's input."""

    ids: NDArray[np.int64]
    positions: NDArray[np.float32]
    """float32 [3, ids] rope positions (time, height, width)."""
    names: NDArray[np.int64]
    """[ids] names of the rows: token ids, and hashes for media. Prompts are equal up to their first different name."""
    talker: TalkerRows
    """The rows for the talker."""
    blocks: tuple[Block, ...] = ()
    starts: tuple[int, ...] = ()
    """The first row of each block."""
    script: list[int] | None = None
    """The token ids of a text that is spoken verbatim; None for a normal answer."""
    whole: bool = True
    """Whether the prompt is complete; False while the user still speaks."""
    ahead: tuple[PictureGrid, ...] = ()
    """Pictures that can be encoded already, although their rows may not be known."""

    @property
    def media_end(self) -> int:
        """The row after the last block."""
        return self.starts[-1] + self.blocks[-1].num_positions if self.blocks else 0

    @property
    def num_final(self) -> int:
        """The number of rows that cannot change.

        In a live video, the last block may get frames until its audio arrives.
        """
        seeing = not self.whole and bool(self.blocks) and self.blocks[-1].mixed and not self.blocks[-1].sounds
        return self.starts[-1] if seeing else len(self.ids)
