"""Depth transformer: draws the codes of a frame one after the other, with other weights for each codebook.

Its keys and values last one frame, so its slots are rows of the batch. Nothing synchronizes with the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.worker.models.moshi.sizes import MoshiSizes
from engine.worker.nn.decoder import DecoderLayer, rms_norm
from engine.worker.nn.quantized import linear
from engine.worker.nn.sampler import draw
from engine.worker.nn.sampling_params import BatchSamplingParams
from engine.worker.nn.slots import CachePositions, KvSlots
from engine.worker.nn.weights import WeightReader

CODES = 1
"""The random stream of codes; that of text is 0."""


class DepthTransformer:
    """The depth transformer of a checkpoint, for batches of at most ``rows``."""

    def __init__(self, read: WeightReader, sizes: MoshiSizes, rows: int) -> None:
        depth = sizes.depth
        self.steps = [_Step(read.below(str(book)), sizes, book) for book in range(sizes.own)]
        dim = depth.head_dim or depth.hidden_size // depth.num_attention_heads
        layers, heads = depth.num_hidden_layers, depth.num_key_value_heads
        self.cache = KvSlots(layers, rows, heads, sizes.own, dim, read.device, read.dtype)
        self._plans: dict[int, list[CachePositions]] = {}

    def __call__(self, hidden: Tensor, text: Tensor, params: BatchSamplingParams, positions: Tensor) -> Tensor:
        """Return the codes [batch, codebooks] of a frame.

        Args:
            hidden: Rows of the temporal transformer [batch, width].
            text: Text tokens of the frame [batch].
            params: How codes are drawn.
            positions: Number of the frame in each session [batch], for the random numbers.
        """
        params = params.together(CODES, positions, len(self.steps))
        token, codes = text, list[Tensor]()
        for book, (step, where) in enumerate(zip(self.steps, self._plan(len(hidden)), strict=True)):
            logits = step(hidden, token.clamp(min=0), where, self.cache)
            token = draw(logits, params, CODES, positions, book)
            codes.append(token)
        return torch.stack(codes, 1)

    def _plan(self, batch: int) -> list[CachePositions]:
        """Return the cache positions of each codebook, computed once per batch size."""
        if batch not in self._plans:
            books = range(len(self.steps))
            self._plans[batch] = [CachePositions.of(self.cache, range(batch), [at] * batch, 1) for at in books]
        return self._plans[batch]


class _Step:
    """The weights of one codebook."""

    def __init__(self, read: WeightReader, sizes: MoshiSizes, book: int) -> None:
        depth, width = sizes.depth, sizes.depth.hidden_size
        dim = depth.head_dim or width // depth.num_attention_heads
        self.into = read.linear(("input",), (width,), sizes.temporal.hidden_size)
        ids = sizes.codes if book else sizes.text_ids
        self.embedding = read("embedding.weight", ids + 1, width)
        self.layers = [_Layer(read.below(f"layers.{i}"), depth, dim) for i in range(depth.num_hidden_layers)]
        self.head = read.linear(("head",), (sizes.codes,), width)

    def __call__(self, hidden: Tensor, token: Tensor, where: CachePositions, cache: KvSlots) -> Tensor:
        """Return the logits [batch, codes] for the previous token [batch]."""
        x = (self.embedding[token] + linear(hidden, self.into))[:, None]
        for i, layer in enumerate(self.layers):
            x = layer.plain(x, where, cache.keys[i], cache.values[i])
        return linear(x[:, 0], self.head)


class _Layer(DecoderLayer):
    """A decoder layer without positions: each codebook has weights of its own instead."""

    def __init__(self, read: WeightReader, config: object, dim: int) -> None:
        super().__init__(read, config, dim, sparse=False)

    def plain(self, x: Tensor, where: CachePositions, keys: Tensor, values: Tensor) -> Tensor:
        query, key, value = self._heads(rms_norm(x, self.before, self.eps)).transpose(1, 2).split(self.heads, 1)
        mixed = where.mix(query, key, value, keys, values).transpose(1, 2).flatten(2)
        x = x + linear(mixed, self.out)
        return x + self.feed(rms_norm(x, self.between, self.eps))
