"""The code predictor: the further codes of a codec frame, one small pass over its groups.

Its cache lives for one frame, so a slot here is a row of the batch. Nothing waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.decoder import Decoder
from engine.worker.nn.sampler import BatchSamplingParams, draw
from engine.worker.nn.slots import CachePositions
from engine.worker.nn.weights import Reader

TOP_K, TOP_P = 50, 0.8  # fixed as in the reference


class Predictor:
    """``stream`` is its stream of randomness."""

    def __init__(self, read: Reader, config: Any, slots: int, stream: int) -> None:
        self.stream = stream
        self.groups, width = config.num_code_groups, config.hidden_size
        self.decoder = Decoder(read.below("model"), config)
        self.cache = self.decoder.cache(slots, self.groups + 1)
        books = range(self.groups - 1)
        self.codes = [read(f"model.codec_embedding.{i}.weight", config.vocab_size, width) for i in books]
        self.heads = [read(f"lm_head.{i}.weight", config.vocab_size, width) for i in books]
        self._plans: dict[int, list[tuple[CachePositions, tuple[Tensor, Tensor]]]] = {}

    def frame(self, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor) -> tuple[Tensor, Tensor]:
        """The further codes [batch, groups − 1] and the sum of their embeddings [batch, width]."""
        params = params.fixed(1.0, TOP_K, TOP_P).together(self.stream, steps, self.groups)
        embeddings = torch.stack((hidden, first), 1)
        codes, total = [], torch.zeros_like(first)
        for group, (where, angles) in enumerate(self._plan(len(hidden))):
            out, _ = self.decoder.forward(embeddings, angles, where, self.cache)
            code = draw(F.linear(out[:, -1], self.heads[group]), params, self.stream, steps, group + 1)
            codes.append(code)
            embeddings = self.codes[group][code.clamp(min=0)][:, None]
            total = total + embeddings[:, 0]
        return torch.stack(codes, 1), total

    def _plan(self, batch: int) -> list[tuple[CachePositions, tuple[Tensor, Tensor]]]:
        """Return where each pass writes, made once for each size of batch."""
        if batch not in self._plans:
            slots, device, decoder = range(batch), self.decoder.device, self.decoder
            starts = [(0, 2), *((at, 1) for at in range(2, self.groups))]
            self._plans[batch] = [
                (
                    CachePositions.of(slots, [at] * batch, count, device),
                    decoder.rope(torch.arange(at, at + count, device=device)[None].float(), decoder.dtype),
                )
                for at, count in starts
            ]
        return self._plans[batch]
