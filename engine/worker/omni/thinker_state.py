"""The thinker's state of a request, and its entries in the prefix cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Tensors
from engine.worker.nn.decode_batch import DecodeInput
from engine.worker.nn.sampling_params import FAILED, SamplingParams
from engine.worker.omni.prompt import Prompt
from engine.worker.stage_request import StageRequest
from engine.worker.text.chat_encoder import TextPieces


@dataclass(frozen=True, slots=True)
class PrefixKV:
    """An entry of the prefix cache."""

    keys: Tensor
    """[layers, heads, rows, dim]."""
    values: Tensor
    """[layers, heads, rows, dim]."""
    hidden: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """[rows, width]: a thinker's hidden rows for the talker."""

    @property
    def size(self) -> int:
        return self.keys.nbytes + self.values.nbytes + self.hidden.nbytes


@dataclass(slots=True)
class ThinkerState:
    """The state of one answer."""

    limit: int
    params: SamplingParams
    pieces: TextPieces
    prompt: Prompt | None = None
    embeddings: Tensor | None = None
    deep: list[Tensor] = field(default_factory=list[Tensor])
    seen: dict[int, tuple[Tensor, ...]] = field(default_factory=dict[int, tuple[Tensor, ...]])
    """The vision encoder's rows that are not in the cache yet, by the pictures' names."""
    hidden: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])
    fresh: bool = False
    """Whether the session's prefix cache has not been searched for this version of the prompt yet."""
    num_computed_tokens: int = 0
    """Rows in the cache."""
    num_sent: int = 0
    """Rows that have been sent to the talker."""
    position: float = 0.0
    """The rope position of the next token."""
    last: int = FAILED
    """The id of the next input token."""
    output_ids: list[int] = field(default_factory=list[int])
    """The ids that were drawn."""
    characters: int = 0
    script: deque[int] | None = None
    kept: deque[int] = field(default_factory=deque[int])
    """Ids that a lost replica had written, and that this one writes again before new ones."""
    unspoken: list[msgspec.Struct] = field(default_factory=list[msgspec.Struct])
    """Tokens for the talker that wait until their last character is complete, so that speech and text agree."""
    call: list[int] | None = None
    called: bool = False
    silent: bool = False
    """Whether the voice has stopped because a tool call began."""
    unkept: bool = False
    """Whether the prompt must still be stored in the prefix cache, which happens after the first token."""

    def speak(self) -> list[Chunk]:
        """Return the talker's chunks of the tokens whose characters are complete."""
        chunks: list[Chunk] = [Tensors.of(token) for token in self.unspoken]
        self.unspoken.clear()
        return chunks

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_ids)

    def positions(self, count: int) -> NDArray[np.float32]:
        """Return the rope positions [3, count] of the next rows, which are equal in all axes."""
        return np.broadcast_to(np.arange(count, dtype=np.float32) + np.float32(self.position), (3, count))

    def ate(self, count: int) -> None:
        """Record ``count`` more rows of the answer in the cache."""
        self.num_computed_tokens += count
        self.position += count

    def decode_input(self, slot: int) -> DecodeInput:
        """Return the request's input of the next decode step."""
        step = self.num_output_tokens
        return DecodeInput(slot, self.num_computed_tokens, self.last, step, self.position, self.params)

    @property
    def most_positions(self) -> int:
        """Maximum cache positions of the request. While the user speaks: the positions of the known prompt."""
        assert self.prompt is not None
        writes = self.whole and self.script is None
        return len(self.prompt.ids) + (self.limit if writes else 0)

    def give_up(self) -> None:
        """Discard the computed prompt, so that it is computed again."""
        self.embeddings = None
        self.deep = []
        self.seen = {}
        self.hidden = []
        self.num_computed_tokens = 0
        self.num_sent = 0
        self.fresh = True

    @property
    def reading(self) -> bool:
        """Whether some of the known prompt is not in the cache, or some picture not encoded."""
        prompt = self.prompt
        if prompt is None:
            return False
        return self.num_computed_tokens < len(prompt.ids) or (bool(prompt.ahead) and self.embeddings is None)

    @property
    def whole(self) -> bool:
        """Whether the whole prompt is known."""
        return self.prompt is not None and self.prompt.whole

    @property
    def writing(self) -> bool:
        """Whether the whole prompt is in the cache."""
        return self.whole and not self.reading


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """Rows of a request's prompt to compute next, and the chunks that result."""

    req: StageRequest
    span: slice
    chunks: list[Chunk]


def deep(pieces: Sequence[PromptPiece]) -> list[Tensor]:
    """Return the deepstack features of each of the first layers, for the rows [all, width] of some pieces."""
    layers = max(len(piece.req.state.deep) for piece in pieces)
    return [torch.cat([_added(piece.req.state, piece.span, layer) for piece in pieces]) for layer in range(layers)]


def _added(thought: ThinkerState, span: slice, layer: int) -> Tensor:
    assert thought.embeddings is not None
    return thought.deep[layer][span] if thought.deep else torch.zeros_like(thought.embeddings[span])
