"""Networks of a talker with residual codes: the talker draws a frame's first code, a code predictor the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.worker.nn.decode_batch import DecodeBatch
from engine.worker.nn.device import to_device
from engine.worker.nn.predictor import FURTHER, FurtherCodes, Predictor
from engine.worker.nn.projection import Projection
from engine.worker.nn.sampling_params import BatchSamplingParams
from engine.worker.nn.weights import WeightReader
from engine.worker.talker import net
from engine.worker.talker.net import PREDICTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class RvqTalkerShape(net.TalkerShape):
    """Settings of a talker with a code predictor."""

    predictor: Any
    """Configuration of the code predictor's transformer stack."""
    text_width: int
    """Width of the text embeddings."""
    text_inner: int
    """Hidden width of the projection from text embeddings to talker rows."""
    further: FurtherCodes = FURTHER
    """How the codes after a frame's first one are sampled."""


class RvqTalkerNet(net.TalkerNet):
    """A checkpoint's talker with its code predictor.

    ``embed_tokens`` is the text embedding table. On a CPU it stays memory-mapped, so only the used rows are loaded.
    """

    def __init__(
        self,
        read: WeightReader,
        shape: RvqTalkerShape,
        embed_tokens: Tensor,
        room: int,
        slots: int,
        static: bool,
        positions: int | None = None,
    ) -> None:
        super().__init__(read, shape, room, slots, static, positions)
        codes = int(shape.decoder.vocab_size)
        self.embed_tokens = embed_tokens if self.device.type == "cpu" else embed_tokens.to(self.device, self.dtype)
        self.project_text = Projection(read.below("text_projection"), shape.text_width, shape.text_inner, self.width)
        self.codes = read("model.codec_embedding.weight", codes, self.width)
        self.predictor = Predictor(
            read.below("code_predictor"), shape.predictor, slots, PREDICTOR, shape.further, self.width
        )
        self.groups = self.predictor.groups
        self.logit_mask = torch.zeros(codes, device=self.device)
        self.logit_mask[-1024:] = -torch.inf  # codes above the codebook are control codes; only the end is allowed
        self.logit_mask[shape.end] = 0
        if static:
            self.capture(slots)

    def text_embeddings(self, texts: Sequence[int]) -> Tensor:
        """Return the projected embeddings of text ids."""
        return self._spoken(to_device(texts, self.embed_tokens.device))

    def batch_embeddings(self, batch: DecodeBatch) -> Tensor:
        return self._spoken(batch.tokens)

    def _spoken(self, ids: Tensor) -> Tensor:
        return self.project_text(self.embed_tokens[ids].to(self.device, self.dtype))

    def frame_embeddings(self, codes: Tensor) -> Tensor:
        """Return the sum of the embeddings of each frame's codes."""
        rest = torch.zeros(len(codes), self.width, device=codes.device, dtype=self.dtype)
        for book, embedding in enumerate(self.predictor.codes, 1):
            rest = rest + embedding[codes[:, book]]
        return super().frame_embeddings(codes) + rest

    def complete(
        self, slots: Tensor, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor
    ) -> Tensor:
        embedded = self.codes[first.clamp(min=0)]
        rest, total = self.predictor.frame(hidden, embedded, params, steps)
        self.last_frame_embed[slots] = embedded + total
        return torch.cat((first[:, None], rest), 1)
