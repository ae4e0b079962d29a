"""The part of a prompt that is sent to the talker: the user's turns piece by piece, and how its own begins. Computes
nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Tensors, kinds
from engine.worker.models.qwen3_omni.speakable import Lead, TextToken, UserTurns
from engine.worker.models.qwen3_omni.special_tokens import Qwen3SpecialTokens
from engine.worker.omni.block import Block
from engine.worker.omni.positions import Positions, RopePositions, counted
from engine.worker.omni.prompt import Prompt, TalkerRows
from engine.worker.omni.talker_feed import TalkerFeed
from engine.worker.omni.thinker_state import PromptPiece


class Qwen3TalkerFeed(TalkerFeed):
    """The user's turns by their ids, sounds and pictures in them by the rows of layer ``tap``; then token ids."""

    kinds = kinds(UserTurns, Lead, TextToken)

    def __init__(self, marks: Qwen3SpecialTokens, positions: RopePositions, tap: int) -> None:
        self.marks = marks
        self.tap = tap
        self.positions = TalkerPositions(marks, positions.per_second)

    def chosen(
        self, ids: Sequence[int], positions: NDArray[np.float32], names: NDArray[np.int64], blocks: Sequence[Block]
    ) -> TalkerRows:
        turns, start = self._user_turns(ids)
        own = self.positions([ids[i] for i in turns], blocks)
        turn_names = names[turns]
        turn_names[turn_names < 0] -= own[0].astype(np.int64)[turn_names < 0]  # they may differ there
        return TalkerRows(np.array(turns, np.int64), own, turn_names, tuple(ids[start : start + 3]))

    def _user_turns(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """The indices of all user turns, and where the last turn, the assistant's, begins."""
        starts = [i for i, id in enumerate(ids) if id == self.marks.turn]
        turns: list[int] = []
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            if ids[start + 1] == self.marks.user:
                turns += range(start, end)
        return turns, starts[-1]

    def hidden_indices(self, prompt: Prompt, piece: slice) -> NDArray[np.int64]:
        """Return where in a piece of the prompt the user's sounds and pictures are."""
        at = prompt.talker.indices[prompt.talker.within(piece)]
        return at[self.marks.stand(prompt.ids[at])]

    def hidden(self, pieces: Sequence[PromptPiece], hidden: Tensor, tapped: Tensor) -> Tensor:
        return tapped

    def chunks(self, prompt: Prompt, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        """The chunks of a piece of the prompt; with the last piece, how the talker's own turn begins."""
        talker, within = prompt.talker, prompt.talker.within(piece)
        chunks: list[Chunk] = []
        if within.start < within.stop:
            ids = prompt.ids[talker.indices[within]]
            turns = UserTurns(within.start, ids, talker.positions[:, within], hidden, talker.names[within])
            chunks.append(Tensors.of(turns, placed=True))
        if prompt.whole and piece.stop == len(prompt.ids):
            chunks.append(Tensors.of(Lead(talker.lead, talker.next_position)))
        return chunks

    def drawn(self, token: int, text_end: int) -> list[msgspec.Struct]:
        return [TextToken(token, text_end)]


class TalkerPositions(RopePositions):
    """The talker of the reference is not told that a video has a sound, and counts through it, unless a picture is
    still to come."""

    def spanned(self, block: Block, ids: Sequence[int], end: int) -> tuple[Positions, Positions]:
        if block.mixed and self.marks.image not in ids[end:]:
            found = counted(block.num_positions) + np.float32(block.before)
            return found, found
        return super().spanned(block, ids, end)
