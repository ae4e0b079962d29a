"""The thinker's state of a request, and what it keeps of a conversation."""

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
    """The computed state of a conversation: keys and values [layers, heads, rows, dim], and a thinker's hidden rows
    [rows, width] that the talker takes."""

    keys: Tensor
    values: Tensor
    hidden: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @property
    def size(self) -> int:
        return self.keys.nbytes + self.values.nbytes + self.hidden.nbytes


@dataclass(slots=True)
class ThinkerState:
    """An answer on its way.

    ``num_computed_tokens`` rows are in the cache, of which ``num_sent`` have gone to the talker; ``last`` is the id
    that goes in next, at ``position``; ``output_ids`` are those that were drawn.
    """

    limit: int
    params: SamplingParams
    pieces: TextPieces
    prompt: Prompt | None = None
    embeddings: Tensor | None = None
    deep: list[Tensor] = field(default_factory=list[Tensor])
    seen: dict[int, tuple[Tensor, ...]] = field(default_factory=dict[int, tuple[Tensor, ...]])
    """The encoder's rows of pictures that are not in the cache, by the pictures' names."""
    hidden: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])
    fresh: bool = False
    """Whether the session may have some of the prompt, and was not asked for it yet."""
    num_computed_tokens: int = 0
    num_sent: int = 0
    position: float = 0.0
    last: int = FAILED
    output_ids: list[int] = field(default_factory=list[int])
    characters: int = 0
    script: deque[int] | None = None
    kept: deque[int] = field(default_factory=deque[int])
    """Ids that a lost replica had written: they are written again before anything else."""
    unspoken: list[msgspec.Struct] = field(default_factory=list[msgspec.Struct])
    """Tokens for the talker that wait until their character is whole: what it speaks is then what the client reads."""
    call: list[int] | None = None
    called: bool = False
    silent: bool = False
    """Whether the voice was told that nothing more is to be said: a call began."""
    unkept: bool = False
    """Whether the prompt is still to be kept for the session: when the first token is on its way to the voice."""

    def speak(self) -> list[Chunk]:
        """Return what the talker is to get of the tokens whose characters are whole."""
        chunks: list[Chunk] = [Tensors.of(token) for token in self.unspoken]
        self.unspoken.clear()
        return chunks

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_ids)

    def positions(self, count: int) -> NDArray[np.float32]:
        """Return the rope positions [3, count] of the next rows, where all axes agree."""
        return np.broadcast_to(np.arange(count, dtype=np.float32) + np.float32(self.position), (3, count))

    def ate(self, count: int) -> None:
        """Count so many more rows of the answer that are in the cache."""
        self.num_computed_tokens += count
        self.position += count

    def decode_input(self, slot: int) -> DecodeInput:
        """Return what the request brings to the next decode step."""
        step = self.num_output_tokens
        return DecodeInput(slot, self.num_computed_tokens, self.last, step, self.position, self.params)

    @property
    def most_positions(self) -> int:
        """Positions of the cache that it may use; of a prompt that is still being spoken, those that are known."""
        assert self.prompt is not None
        writes = self.whole and self.script is None
        return len(self.prompt.ids) + (self.limit if writes else 0)

    def give_up(self) -> None:
        """Forget what was computed of the prompt: it is computed anew."""
        self.embeddings = None
        self.deep = []
        self.seen = {}
        self.hidden = []
        self.num_computed_tokens = 0
        self.num_sent = 0
        self.fresh = True

    @property
    def reading(self) -> bool:
        """Whether some of the prompt, as far as it is known, is not in the cache, or not looked at."""
        prompt = self.prompt
        if prompt is None:
            return False
        return self.num_computed_tokens < len(prompt.ids) or (bool(prompt.ahead) and self.embeddings is None)

    @property
    def whole(self) -> bool:
        """Whether all of the prompt is known."""
        return self.prompt is not None and self.prompt.whole

    @property
    def writing(self) -> bool:
        """Whether all of the prompt is in the cache."""
        return self.whole and not self.reading


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """Some rows of a request's prompt, which go in next, and the chunks that come of them."""

    req: StageRequest
    span: slice
    chunks: list[Chunk]


def deep(pieces: Sequence[PromptPiece]) -> list[Tensor]:
    """Return what deepstack adds to each of the first layers, for the rows [all, width] of some pieces; words get
    nothing."""
    layers = max(len(piece.req.state.deep) for piece in pieces)
    return [torch.cat([_added(piece.req.state, piece.span, layer) for piece in pieces]) for layer in range(layers)]


def _added(thought: ThinkerState, span: slice, layer: int) -> Tensor:
    assert thought.embeddings is not None
    return thought.deep[layer][span] if thought.deep else torch.zeros_like(thought.embeddings[span])
