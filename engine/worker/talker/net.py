"""Base class of a talker's networks: prompts and frames to hidden rows, and hidden rows to codec frames.

A family adds the text embeddings and the codes after each frame's first one. State is kept per slot: the KV cache, the
codes spoken so far (for the repetition penalty), and the last frame's part of the next input row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn.cuda_graph_runner import CudaGraphRunner
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.device import to_device
from engine.worker.nn.prefills import Prefills
from engine.worker.nn.sampler import draw, penalised
from engine.worker.nn.sampling_params import BatchSamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.nn.weights import WeightReader

TALKER, PREDICTOR = 1, 2  # random streams; 0 belongs to the thinker


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkerShape:
    """Settings of a talker from the checkpoint's configuration."""

    decoder: Any
    """Configuration of the transformer stack."""
    begin: int
    """Code that begins the frames."""
    end: int
    """Code that ends the frames."""
    penalty: float = 1.05
    """Repetition penalty for the first code of a frame."""
    top_k: int = 50
    fewest: int = 0
    """Minimum number of frames of an answer."""


class TalkerNet(ABC):
    """A checkpoint's talker.

    ``room`` is the number of rows of a slot; ``positions``, if given, limits the rows of all slots together. A family
    calls ``capture`` after its weights are loaded.
    """

    codes: Tensor
    """Embeddings [codes, width] of a frame's first code."""
    logit_mask: Tensor
    """Additive mask [codes] that allows only audio codes and the end code."""
    groups = 1
    """Codes per frame."""

    def __init__(
        self, read: WeightReader, shape: TalkerShape, room: int, slots: int, static: bool, positions: int | None = None
    ) -> None:
        self.shape = shape
        self.room = room
        decoder = shape.decoder
        self.device = read.device
        self.dtype = read.dtype
        self.width = int(decoder.hidden_size)
        self.head = read("codec_head.weight", decoder.vocab_size, self.width)
        self.decoder = TransformerDecoder(read.below("model"), decoder)
        own = slots + static  # with graphs, the padding rows of a batch use the last slot
        self.cache = self.decoder.cache(own, room, positions)
        self.seen_codes = torch.zeros(own, decoder.vocab_size, device=self.device, dtype=torch.bool)
        self.last_frame_embed = torch.zeros(own, self.width, device=self.device, dtype=self.dtype)
        # Avoids copying Python's True to the device in every step.
        self.true = torch.ones((), device=self.device, dtype=torch.bool)
        self.graphs: CudaGraphRunner | None = None
        self.prefills = Prefills("talker's prompts", self.decoder, self.cache, -1, static)

    def capture(self, slots: int) -> None:
        """Capture CUDA graphs of decode steps and prefills."""
        bucketed = self.decoder.kernels is None
        self.graphs = CudaGraphRunner("talker", self._step, slots, self.room, self.shape.top_k, self.device, bucketed)
        self.graphs.warm()
        self.prefills.warm()

    def open(self, slot: int) -> None:
        """Reset a slot's state for a new answer."""
        self.seen_codes[slot] = False

    @abstractmethod
    def text_embeddings(self, texts: Sequence[int]) -> Tensor:
        """Return rows [n, width] of text tokens."""

    @abstractmethod
    def batch_embeddings(self, batch: DecodeBatch) -> Tensor:
        """Return rows [batch, width] of a batch's text tokens; captured in a graph."""

    @abstractmethod
    def complete(
        self, slots: Tensor, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor
    ) -> Tensor:
        """Draw the remaining codes of frames, and store their part of the next row in ``last_frame_embed``.

        Args:
            slots: Slots [batch].
            hidden: Hidden rows [batch, width].
            first: First codes [batch]; ``FAILED`` where sampling failed.
            params: Sampling parameters of the batch.
            steps: Index [batch] of each frame within its answer.

        Returns:
            Frames [batch, groups], without synchronizing with the device.
        """

    def next_embeddings(self, slots: Sequence[int], texts: Sequence[int]) -> Tensor:
        """Return the input rows [batch, width] after each slot's last frame, with the next text tokens."""
        return self.last_frame_embed[to_device(slots, self.device)] + self.text_embeddings(texts)

    def lead(self, slots: Sequence[int]) -> None:
        """Make the code that begins the frames the next input of these slots."""
        self.last_frame_embed[to_device(slots, self.device)] = self.codes[self.shape.begin]

    def frame_embeddings(self, codes: Tensor) -> Tensor:
        """Return the part of the next input rows [n, width] that comes from frames [n, groups]."""
        return self.codes[codes[:, 0]]

    def append(self, batch: Batch) -> Tensor:
        """Prefill a batch of prompt pieces. Returns the hidden row of each piece's last token [pieces, width]."""
        hidden, _ = self.prefills(batch)
        return hidden if len(hidden) == len(batch) else hidden[to_device(batch.lasts, self.device)]

    def frames(
        self, slots: Sequence[int], hidden: Tensor, params: BatchSamplingParams, steps: Sequence[int]
    ) -> NDArray[np.int16]:
        """Return a frame [batch, groups] for each slot from its hidden row. Synchronizes with the device once, at the
        end.
        """
        found = self._frames(to_device(slots, self.device), hidden, params, to_device(steps, self.device))
        return found.cpu().numpy().astype(np.int16)

    def speak(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int16]:
        """Feed one text token per slot after its last frame, and return the next frames [batch, groups]."""
        assert self.graphs is not None
        return self.graphs(inputs).astype(np.int16)

    def _step(self, batch: DecodeBatch, bucket: int) -> Tensor:
        """Return the next frames [batch, groups], like ``speak``, in a form that a CUDA graph can capture."""
        row = self.last_frame_embed[batch.slots] + self.batch_embeddings(batch)
        angles = self.decoder.rope(batch.positions.expand(3, -1)[..., None], self.dtype)
        where = self.decoder.one_row(self.cache, batch.slots, batch.starts, bucket)
        hidden = self.decoder.step(row[:, None], angles, where, self.cache)
        return self._frames(batch.slots, hidden[:, 0], batch.params, batch.steps)

    def _frames(self, slots: Tensor, hidden: Tensor, params: BatchSamplingParams, steps: Tensor) -> Tensor:
        """Draw the frames [batch, groups] and update the slots' state, without synchronizing with the device."""
        seen, logits = self.seen_codes[slots], F.linear(hidden, self.head).float()
        logits = penalised(logits, seen, self.shape.penalty) + self.logit_mask
        if self.shape.fewest:
            early = steps < self.shape.fewest
            logits[:, self.shape.end] = logits[:, self.shape.end].masked_fill(early, -torch.inf)
        first = draw(logits, params, TALKER, steps, 0, self.decoder.kernels)
        self.seen_codes.index_put_((slots, first.clamp(min=0)), self.true)
        return self.complete(slots, hidden, first, params, steps)

    def follow(self, slot: int, frames: NDArray[np.int16], given: int = 0) -> Tensor:
        """Feed known frames [n, groups] without drawing any.

        The first ``given`` ones come from another speaker and are exempt from the repetition penalty. Returns the input
        rows [n - 1, width] between the frames, without their text.
        """
        codes = to_device(frames.astype(np.int64), self.device)
        embeddings = self.frame_embeddings(codes)
        self.last_frame_embed[slot] = embeddings[-1]
        self.seen_codes[slot].index_put_((codes[given:, 0],), self.true)
        return embeddings[:-1]

    def forget(self, slot: int) -> None:
        """Clear a slot whose values may be NaN."""
        self.cache.clear(slot)
        self.last_frame_embed[slot] = 0
