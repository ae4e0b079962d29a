"""Selects the part of a prompt that the talker needs: the user's turns, and the start of the assistant's turn."""

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
    """Sends user turns as ids, with rows of layer ``tap`` for audio and images; then the answer's token ids."""

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
        turn_names[turn_names < 0] -= own[0].astype(np.int64)[turn_names < 0]  # relative to the talker's own positions
        return TalkerRows(np.array(turns, np.int64), own, turn_names, tuple(ids[start : start + 3]))

    def _user_turns(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """Return the indices of all user turns, and the start of the last turn, which is the assistant's."""
        starts = [i for i, id in enumerate(ids) if id == self.marks.turn]
        turns: list[int] = []
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            if ids[start + 1] == self.marks.user:
                turns += range(start, end)
        return turns, starts[-1]

    def hidden_indices(self, prompt: Prompt, piece: slice) -> NDArray[np.int64]:
        """Return the positions of the user's audio and images within a piece of the prompt."""
        at = prompt.talker.indices[prompt.talker.within(piece)]
        return at[self.marks.stand(prompt.ids[at])]

    def hidden(self, pieces: Sequence[PromptPiece], hidden: Tensor, tapped: Tensor) -> Tensor:
        return tapped

    def chunks(self, prompt: Prompt, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        """Return the chunks for a piece of the prompt; the last piece adds the start of the assistant's turn."""
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
    """Rope positions as in the reference's talker, which does not know that a video has audio.

    It counts through such a video consecutively, unless an image follows.
    """

    def spanned(self, block: Block, ids: Sequence[int], end: int) -> tuple[Positions, Positions]:
        if block.mixed and self.marks.image not in ids[end:]:
            found = counted(block.num_positions) + np.float32(block.before)
            return found, found
        return super().spanned(block, ids, end)
