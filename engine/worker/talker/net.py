"""Base of a talker's networks: rows of its slots' prompts and frames to hidden rows, and those to codec frames.

A family adds what a text is as a row, and what comes behind a frame's first code. State lies in slots: the cache, which
codes a voice has spoken (they are penalised), and what of the last frame goes into the next row. Knows no stage and no
request.
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

TALKER, PREDICTOR = 1, 2  # streams of randomness; 0 is a thinker's


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkerShape:
    """The facts that a checkpoint's configuration tells of its talker.

    ``decoder`` is the configuration of its stack. ``begin`` and ``end`` are the ids of the codec's marks.
    """

    decoder: Any
    begin: int
    end: int
    penalty: float = 1.05
    top_k: int = 50
    fewest: int = 0
    """Frames that come before an answer may end."""


class TalkerNet(ABC):
    """A checkpoint's talker. ``room`` rows fit into a slot; where all share so many ``positions``, no
    more than those. A family's ``capture`` is called once all is read."""

    codes: Tensor
    """The embeddings [codes, width] of a frame's first code."""
    logit_mask: Tensor
    """The mask [codes] that leaves the codes of sound, and the end."""
    groups = 1
    """Codes of a frame."""

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
        own = slots + static  # of the last one, and of its row below, nobody's steps are
        self.cache = self.decoder.cache(own, room, positions)
        self.seen_codes = torch.zeros(own, decoder.vocab_size, device=self.device, dtype=torch.bool)
        self.last_frame_embed = torch.zeros(own, self.width, device=self.device, dtype=self.dtype)
        self.true = torch.ones((), device=self.device, dtype=torch.bool)  # Python's own True would be copied there
        self.graphs: CudaGraphRunner | None = None
        self.prefills = Prefills("talker's prompts", self.decoder, self.cache, -1, static)

    def capture(self, slots: int) -> None:
        """Make graphs of decode steps, and of prompts."""
        bucketed = self.decoder.kernels is None
        self.graphs = CudaGraphRunner("talker", self._step, slots, self.room, self.shape.top_k, self.device, bucketed)
        self.graphs.warm()
        self.prefills.warm()

    def open(self, slot: int) -> None:
        """A new answer: nothing was spoken."""
        self.seen_codes[slot] = False

    @abstractmethod
    def text_embeddings(self, texts: Sequence[int]) -> Tensor:
        """Rows [n, width] of texts."""

    @abstractmethod
    def batch_embeddings(self, batch: DecodeBatch) -> Tensor:
        """Rows [batch, width] of a batch's texts, as a graph captures it."""

    @abstractmethod
    def complete(
        self, slots: Tensor, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor
    ) -> Tensor:
        """Return frames [batch, groups] of their first codes [batch], of which some may be ``FAILED``; leave what goes
        into the next row in ``last_frame_embed``. Nothing waits."""

    def next_embeddings(self, slots: Sequence[int], texts: Sequence[int]) -> Tensor:
        """The rows [batch, width] behind each slot's last frame."""
        return self.last_frame_embed[to_device(slots, self.device)] + self.text_embeddings(texts)

    def lead(self, slots: Sequence[int]) -> None:
        """The row with which the frames begin is to be the next one of these slots."""
        self.last_frame_embed[to_device(slots, self.device)] = self.codes[self.shape.begin]

    def frame_embeddings(self, codes: Tensor) -> Tensor:
        """Return what of frames [n, groups] goes into the next rows [n, width]."""
        return self.codes[codes[:, 0]]

    def append(self, batch: Batch) -> Tensor:
        """Take rows in; of each piece the hidden row of its last [pieces, width]."""
        hidden, _ = self.prefills(batch)
        return hidden if len(hidden) == len(batch) else hidden[to_device(batch.lasts, self.device)]

    def frames(
        self, slots: Sequence[int], hidden: Tensor, params: BatchSamplingParams, steps: Sequence[int]
    ) -> NDArray[np.int16]:
        """A frame [groups] for each slot, of hidden rows; the device is asked once, at the end."""
        found = self._frames(to_device(slots, self.device), hidden, params, to_device(steps, self.device))
        return found.cpu().numpy().astype(np.int16)

    def speak(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int16]:
        """Take in a text for each slot, behind its last frame; its next frame [groups]."""
        assert self.graphs is not None
        return self.graphs(inputs).astype(np.int16)

    def _step(self, batch: DecodeBatch, bucket: int) -> Tensor:
        """``speak`` as a graph captures it: codes [batch, groups]."""
        row = self.last_frame_embed[batch.slots] + self.batch_embeddings(batch)
        angles = self.decoder.rope(batch.positions.expand(3, -1)[..., None], self.dtype)
        where = self.decoder.one_row(self.cache, batch.slots, batch.starts, bucket)
        hidden = self.decoder.step(row[:, None], angles, where, self.cache)
        return self._frames(batch.slots, hidden[:, 0], batch.params, batch.steps)

    def _frames(self, slots: Tensor, hidden: Tensor, params: BatchSamplingParams, steps: Tensor) -> Tensor:
        """Codes [batch, groups]; what they leave in their slots. Nothing waits."""
        seen, logits = self.seen_codes[slots], F.linear(hidden, self.head).float()
        logits = penalised(logits, seen, self.shape.penalty) + self.logit_mask
        if self.shape.fewest:
            early = steps < self.shape.fewest
            logits[:, self.shape.end] = logits[:, self.shape.end].masked_fill(early, -torch.inf)
        first = draw(logits, params, TALKER, steps, 0, self.decoder.kernels)
        self.seen_codes.index_put_((slots, first.clamp(min=0)), self.true)
        return self.complete(slots, hidden, first, params, steps)

    def follow(self, slot: int, frames: NDArray[np.int16], given: int = 0) -> Tensor:
        """Take frames [n, groups] as spoken, the first ``given`` of them by somebody else; the rows [n − 1, width]
        that lie between them, without their text."""
        codes = to_device(frames.astype(np.int64), self.device)
        embeddings = self.frame_embeddings(codes)
        self.last_frame_embed[slot] = embeddings[-1]
        self.seen_codes[slot].index_put_((codes[given:, 0],), self.true)
        return embeddings[:-1]

    def forget(self, slot: int) -> None:
        """Clear a slot whose rows may be no numbers."""
        self.cache.clear(slot)
        self.last_frame_embed[slot] = 0
