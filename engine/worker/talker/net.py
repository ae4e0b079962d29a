"""The talker's networks: rows of its slots' prompts and frames to hidden rows, and those to codec frames.

Its state lies in slots: the cache, which codes it has spoken (they are penalised), and what of the last frame goes
into the next row. Knows no stage and no request.
"""

from __future__ import annotations

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
from engine.worker.nn.decoder import Decoder
from engine.worker.nn.device import to_device
from engine.worker.nn.predictor import FURTHER, FurtherCodes, Predictor
from engine.worker.nn.projection import Projection
from engine.worker.nn.sampler import BatchSamplingParams, draw, penalised
from engine.worker.nn.slots import Batch, DecodeSlots
from engine.worker.nn.weights import Reader

TALKER, PREDICTOR = 1, 2  # streams of randomness; 0 is a thinker's


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkerShape:
    """The facts that a checkpoint's configuration tells of its talker.

    ``decoder`` and ``predictor`` are the configurations of the two stacks; text ids become rows of ``text_width``, and
    by way of ``text_inner`` rows of the talker. ``begin`` and ``end`` are the ids of the codec's marks.
    """

    decoder: Any
    predictor: Any
    text_width: int
    text_inner: int
    begin: int
    end: int
    penalty: float = 1.05
    top_k: int = 50
    further: FurtherCodes = FURTHER
    """The way in which the codes behind a frame's first one are drawn."""
    fewest: int = 0
    """Frames that come before an answer may end."""


class TalkerNet:
    """A checkpoint's talker, with its code predictor. ``room`` rows fit into a slot.

    ``embed_tokens`` is the table of the text's ids. On a CPU it stays in its file, of which only what is spoken is
    touched.
    """

    def __init__(self, read: Reader, shape: TalkerShape, embed_tokens: Tensor, room: int, slots: int, static: bool):
        self.shape, self.room, text = shape, room, shape.decoder
        self.device, self.dtype, self.width = read.device, read.dtype, int(text.hidden_size)
        self.embed_tokens = embed_tokens if self.device.type == "cpu" else embed_tokens.to(self.device, self.dtype)
        self.project_text = Projection(read.below("text_projection"), shape.text_width, shape.text_inner, self.width)
        self.codes = read("model.codec_embedding.weight", text.vocab_size, self.width)
        self.head = read("codec_head.weight", text.vocab_size, self.width)
        self.decoder = Decoder(read.below("model"), text)
        own = slots + static  # of the last one, and of its row below, nobody's steps are
        self.cache = self.decoder.cache(own, room)
        self.predictor = Predictor(
            read.below("code_predictor"), shape.predictor, slots, PREDICTOR, shape.further, self.width
        )
        self.seen_codes = torch.zeros(own, text.vocab_size, device=self.device, dtype=torch.bool)
        self.last_frame_embed = torch.zeros(own, self.width, device=self.device, dtype=self.dtype)
        self.logit_mask = torch.zeros(text.vocab_size, device=self.device)
        self.logit_mask[-1024:] = -torch.inf  # a code above the codebook is no sound, but the end
        self.logit_mask[shape.end] = 0
        self._true = torch.ones((), device=self.device, dtype=torch.bool)
        self.graphs: CudaGraphRunner | None = None
        if static:
            self.graphs = CudaGraphRunner("talker", self._step, slots, room, shape.top_k, self.device)
            self.graphs.warm()

    def text_embeddings(self, ids: Sequence[int]) -> Tensor:
        """Projected embeddings of text ids."""
        return self._spoken(to_device(ids, self.embed_tokens.device))

    def _spoken(self, ids: Tensor) -> Tensor:
        return self.project_text(self.embed_tokens[ids].to(self.device, self.dtype))

    def next_embeddings(self, slots: Sequence[int], texts: Sequence[int]) -> Tensor:
        """The rows [batch, width] behind each slot's last frame."""
        return self.last_frame_embed[to_device(slots, self.device)] + self.text_embeddings(texts)

    def lead(self, slots: Sequence[int]) -> None:
        """The row with which the frames begin is to be the next one of these slots."""
        self.last_frame_embed[to_device(slots, self.device)] = self.codes[self.shape.begin]

    def frame_embeddings(self, codes: Tensor) -> Tensor:
        """Return what of frames [n, groups] goes into the next rows: the sum of their embeddings."""
        rest = torch.zeros(len(codes), self.width, device=codes.device, dtype=self.dtype)
        for book, embedding in enumerate(self.predictor.codes, 1):
            rest = rest + embedding[codes[:, book]]
        return self.codes[codes[:, 0]] + rest

    def append(self, batch: Batch) -> Tensor:
        """Take rows in; of each piece the hidden row of its last [pieces, width]."""
        hidden, _ = self.decoder.append(batch, self.cache)
        return hidden if len(hidden) == len(batch) else hidden[to_device(batch.lasts, self.device)]

    def frames(
        self, slots: Sequence[int], hidden: Tensor, params: BatchSamplingParams, steps: Sequence[int]
    ) -> NDArray[np.int16]:
        """A frame [groups] for each slot, of hidden rows; the device is asked once, at the end."""
        found = self._frames(to_device(slots, self.device), hidden, params, to_device(steps, self.device))
        return found.cpu().numpy().astype(np.int16)

    def speak(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int16]:
        """Take in a text token for each slot, behind its last frame; its next frame [groups]."""
        assert self.graphs is not None
        return self.graphs(inputs).astype(np.int16)

    def _step(self, batch: DecodeBatch, bucket: int) -> Tensor:
        """``speak`` as a graph captures it: codes [batch, groups]."""
        row = self.last_frame_embed[batch.slots] + self._spoken(batch.tokens)
        angles = self.decoder.rope(batch.positions.expand(3, -1)[..., None], self.dtype)
        where = DecodeSlots.of(batch.slots, batch.starts, bucket, self.dtype)
        hidden, _ = self.decoder.forward(row[:, None], angles, where, self.cache)
        return self._frames(batch.slots, hidden[:, 0], batch.params, batch.steps)

    def _frames(self, slots: Tensor, hidden: Tensor, params: BatchSamplingParams, steps: Tensor) -> Tensor:
        """Code 0, then the predictor's [batch, groups]; what they leave in their slots. Nothing waits."""
        seen, logits = self.seen_codes[slots], F.linear(hidden, self.head).float()
        logits = penalised(logits, seen, self.shape.penalty) + self.logit_mask
        if self.shape.fewest:
            early = steps < self.shape.fewest
            logits[:, self.shape.end] = logits[:, self.shape.end].masked_fill(early, -torch.inf)
        first = draw(logits, params, TALKER, steps)
        self.seen_codes.index_put_((slots, first.clamp(min=0)), self._true)  # Python's own True would be copied there
        embedded = self.codes[first.clamp(min=0)]
        rest, total = self.predictor.frame(hidden, embedded, params, steps)
        self.last_frame_embed[slots] = embedded + total
        return torch.cat((first[:, None], rest), 1)

    def follow(self, slot: int, frames: NDArray[np.int16], given: int = 0) -> Tensor:
        """Take frames [n, groups] as spoken, the first ``given`` of them by somebody else; the rows [n − 1, width]
        that lie between them, without their text."""
        codes = to_device(frames.astype(np.int64), self.device)
        embeddings = self.frame_embeddings(codes)
        self.last_frame_embed[slot] = embeddings[-1]
        self.seen_codes[slot].index_put_((codes[given:, 0],), self._true)
        return embeddings[:-1]

    def forget(self, slot: int) -> None:
        """Clear a slot whose rows may be no numbers."""
        self.cache.clear(slot)
        self.last_frame_embed[slot] = 0
