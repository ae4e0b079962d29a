"""The messages from a thinker to its talker: rows of the prompt piece by piece, then the answer token by token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Kind, Tensors, Usage
from engine.errors import StageFailed
from engine.worker.omni.block import Block
from engine.worker.omni.prompt import Prompt, TalkerRows
from engine.worker.omni.thinker_state import PromptPiece

S = TypeVar("S", bound=msgspec.Struct)


class TextEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="omni.text_end"):
    """Message from the thinker to the talker: the rest of the text is not spoken, because a tool call begins."""


class TalkerFeed(ABC):
    """A model family's conversion of the thinker's output to the talker's input."""

    kinds: frozenset[Kind]
    """The kinds of chunks that this feed creates."""
    tap: int = -1
    """The decoder layer whose hidden rows the talker needs; -1: none."""

    @abstractmethod
    def chosen(
        self, ids: Sequence[int], positions: NDArray[np.float32], names: NDArray[np.int64], blocks: Sequence[Block]
    ) -> TalkerRows:
        """Choose the rows of a prompt for the talker."""

    @abstractmethod
    def hidden_indices(self, prompt: Prompt, piece: slice) -> NDArray[np.int64]:
        """Return the indices of the rows in a piece of the prompt whose hidden states the talker needs."""

    @abstractmethod
    def hidden(self, pieces: Sequence[PromptPiece], hidden: Tensor, tapped: Tensor) -> Tensor:
        """Return the talker's input for computed rows.

        Args:
            pieces: The pieces of prompts that were computed.
            hidden: The last hidden rows [all, width].
            tapped: The hidden rows of layer ``tap``.
        """

    @abstractmethod
    def chunks(self, prompt: Prompt, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        """Return the chunks of a piece of the prompt.

        ``hidden`` has the rows that the piece's ``hidden_indices`` chose.
        """

    @abstractmethod
    def drawn(self, token: int, text_end: int) -> list[msgspec.Struct]:
        """Return the talker's input for a token that should be spoken. The answer then has ``text_end`` characters."""


def read(chunk: Chunk, structs: Iterable[type[S]]) -> S | Usage:
    """Decode a chunk from the thinker: one of these structs, or its Usage. Raises StageFailed for any other chunk."""
    if isinstance(chunk, Usage):
        return chunk
    found = next((one for one in structs if one.__struct_config__.tag == chunk.kind), None)
    if found is None or not isinstance(chunk, Tensors):
        raise StageFailed(f"the talker takes only messages of its own thinker, but received {chunk.kind}")
    try:
        return chunk.read(found)
    except msgspec.ValidationError as error:
        raise StageFailed(f"the talker received an invalid {chunk.name} message from the thinker: {error}") from None
