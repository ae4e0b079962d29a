"""Code predictor: draws the remaining codes of a codec frame with a small decoder that runs over its codebooks.

Its KV cache lasts one frame, so its slots are rows of the batch. Nothing synchronizes with the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.sampler import draw
from engine.worker.nn.sampling_params import BatchSamplingParams
from engine.worker.nn.slots import CachePositions, OneRow
from engine.worker.nn.weights import WeightReader


@dataclass(frozen=True, slots=True)
class FurtherCodes:
    """Sampling settings for the codes after a frame's first one, independent of the request.

    The defaults are those of transformers' talkers.
    """

    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.8


FURTHER = FurtherCodes()


class Predictor:
    """The code predictor, which draws the codes after a frame's first one. ``stream`` is its random stream.

    If the talker's rows (``outer``) are wider than the predictor's, they are projected first (tensor
    small_to_mtp_projection).
    """

    def __init__(
        self,
        read: WeightReader,
        config: Any,
        slots: int,
        stream: int,
        further: FurtherCodes = FURTHER,
        outer: int = 0,
    ) -> None:
        self.stream = stream
        self.further = further
        self.groups = int(config.num_code_groups)
        width = int(config.hidden_size)
        outer = outer or width
        self.decoder = TransformerDecoder(read.below("model"), config)
        self.cache = self.decoder.cache(slots, self.groups + 1)
        projection = read.below("small_to_mtp_projection")
        self.project = None if outer == width else (projection("weight", width, outer), projection("bias", width))
        books = range(self.groups - 1)
        self.codes = [read(f"model.codec_embedding.{i}.weight", config.vocab_size, outer) for i in books]
        self.heads = [read(f"lm_head.{i}.weight", config.vocab_size, width) for i in books]
        self._plans: dict[int, list[tuple[CachePositions | OneRow, tuple[Tensor, Tensor]]]] = {}

    def frame(self, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Return the remaining codes [batch, groups - 1] and the sum of their embeddings [batch, outer]."""
        further = self.further
        kernels = self.decoder.kernels
        params = params.fixed(further.temperature, further.top_k, further.top_p)
        if kernels is None:
            params = params.together(self.stream, steps, self.groups)
        embeddings = torch.stack((hidden, first), 1)
        codes, total = [], torch.zeros_like(first)
        for group, (where, angles) in enumerate(self._plan(len(hidden))):
            inputs = embeddings if self.project is None else F.linear(embeddings, *self.project)
            out = self.decoder.step(inputs, angles, where, self.cache)
            code = draw(F.linear(out[:, -1], self.heads[group]), params, self.stream, steps, group + 1, kernels)
            codes.append(code)
            embeddings = self.codes[group][code.clamp(min=0)][:, None]
            total = total + embeddings[:, 0]
        return torch.stack(codes, 1), total

    def _plan(self, batch: int) -> list[tuple[CachePositions | OneRow, tuple[Tensor, Tensor]]]:
        """Return the cache positions and angles of each pass, computed once per batch size."""
        if batch not in self._plans:
            starts = [(0, 2), *((at, 1) for at in range(2, self.groups))]
            self._plans[batch] = [(self._where(batch, at, count), self._angles(at, count)) for at, count in starts]
        return self._plans[batch]

    def _where(self, batch: int, at: int, count: int) -> CachePositions | OneRow:
        if count > 1 or self.decoder.kernels is None:
            return CachePositions.of(self.cache, range(batch), [at] * batch, count)
        slots = torch.arange(batch, device=self.decoder.device)
        return self.decoder.one_row(self.cache, slots, torch.full_like(slots, at), self.cache.length)

    def _angles(self, at: int, count: int) -> tuple[Tensor, Tensor]:
        decoder = self.decoder
        return decoder.rope(torch.arange(at, at + count, device=decoder.device)[None].float(), decoder.dtype)
