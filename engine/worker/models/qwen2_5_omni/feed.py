"""Messages from the thinker to the talker: prompt rows, the prompt's end, and one row per answer token."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Tensors, kinds
from engine.worker.nn.device import to_device
from engine.worker.omni.block import Block
from engine.worker.omni.prompt import Prompt, TalkerRows
from engine.worker.omni.special_tokens import SpecialTokens
from engine.worker.omni.talker_feed import TalkerFeed
from engine.worker.omni.thinker_state import PromptPiece


class PromptRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.prompt_rows"):
    """Message from the thinker to the talker: consecutive rows of the prompt.

    A row stands for one text token, or for a part of an audio clip or a picture.
    """

    at: int
    """Index of the first row."""
    hidden: NDArray[np.float32]
    """Embedding plus last hidden row [rows, width]."""
    positions: NDArray[np.float32]
    """Rope positions [3, rows]."""
    names: NDArray[np.int64]
    """Content names [rows], used to find reusable prefixes."""


class PromptEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.prompt_end"):
    """End of the prompt, which has ``count`` rows; the assistant's turn starts at rope position ``position``."""

    count: int
    position: float


class ReplyRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.reply_row"):
    """The next answer token as embedding plus hidden row [width]; ``text_end`` is the answer's length in characters
    after it.
    """

    hidden: NDArray[np.float32]
    text_end: int


class Qwen2_5TalkerFeed(TalkerFeed):
    """Sends the whole prompt, with zero embeddings for audio and images. Sends nothing for a checkpoint without a
    talker.
    """

    kinds = kinds(PromptRows, PromptEnd, ReplyRow)

    def __init__(self, marks: SpecialTokens, speaks: bool) -> None:
        self.marks = marks
        self.speaks = speaks

    def chosen(
        self, ids: Sequence[int], positions: NDArray[np.float32], names: NDArray[np.int64], blocks: Sequence[Block]
    ) -> TalkerRows:
        return TalkerRows(np.arange(len(ids)), positions, names)

    def hidden_indices(self, prompt: Prompt, piece: slice) -> NDArray[np.int64]:
        return np.arange(piece.start, piece.stop if self.speaks else piece.start)

    def hidden(self, pieces: Sequence[PromptPiece], hidden: Tensor, tapped: Tensor) -> Tensor:
        media = np.concatenate([self.marks.stand(one.req.state.prompt.ids[one.span]) for one in pieces])
        embeddings = torch.cat([one.req.state.embeddings[one.span] for one in pieces])
        return hidden + embeddings.masked_fill(to_device(media, hidden.device)[:, None], 0)

    def chunks(self, prompt: Prompt, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        talker, chunks = prompt.talker, list[Chunk]()
        if piece.start < piece.stop:
            found = PromptRows(piece.start, hidden, talker.positions[:, piece], talker.names[piece])
            chunks.append(Tensors.of(found, placed=True))
        if prompt.whole and piece.stop == len(prompt.ids):
            chunks.append(Tensors.of(PromptEnd(piece.stop, talker.next_position)))
        return chunks

    def drawn(self, token: int, text_end: int) -> list[msgspec.Struct]:
        """Return nothing: a token is sent once the thinker has computed it, see ``Thinker``."""
        return []
