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
    """No more of the text is to be spoken, though the answer goes on: with a tool call."""


class TalkerFeed(ABC):
    """A family's way from its thinker to its talker. ``kinds`` are the chunks that it makes; ``tap`` is the layer of
    whose rows it makes some (-1: of none)."""

    kinds: frozenset[Kind]
    tap: int = -1

    @abstractmethod
    def chosen(
        self, ids: Sequence[int], positions: NDArray[np.float32], names: NDArray[np.int64], blocks: Sequence[Block]
    ) -> TalkerRows:
        """Choose the rows of a prompt that the talker takes."""

    @abstractmethod
    def hidden_indices(self, prompt: Prompt, piece: slice) -> NDArray[np.int64]:
        """Return for which rows of a piece of the prompt the talker takes what the thinker made of them."""

    @abstractmethod
    def hidden(self, pieces: Sequence[PromptPiece], hidden: Tensor, tapped: Tensor) -> Tensor:
        """Return what the talker takes of computed rows [all, width]: of their last hidden rows, of those of layer
        ``tap``, and of what the pieces know of them."""

    @abstractmethod
    def chunks(self, prompt: Prompt, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        """Make the chunks of a piece of the prompt, with the rows of its ``hidden_indices``."""

    @abstractmethod
    def drawn(self, token: int, text_end: int) -> list[msgspec.Struct]:
        """Return what the talker takes of a token to be spoken that was drawn; the answer has ``text_end`` characters
        behind it."""


def read(chunk: Chunk, structs: Iterable[type[S]]) -> S | Usage:
    """Read a chunk from the thinker: one of these structs, or its usage. Raises StageFailed for any other chunk."""
    if isinstance(chunk, Usage):
        return chunk
    found = next((one for one in structs if one.__struct_config__.tag == chunk.kind), None)
    if found is None or not isinstance(chunk, Tensors):
        raise StageFailed(f"the talker takes what its own thinker says, not {chunk.kind}")
    try:
        return chunk.read(found)
    except msgspec.ValidationError as error:
        raise StageFailed(f"the thinker's {chunk.name} cannot be read: {error}") from None
