"""Moshi's language model: one position per frame, over a text stream and the codebooks of both speakers.

Stream ``k`` is delayed by ``delays[k]`` frames. At position ``p`` the model reads the user's codes of that frame and
its own tokens of the previous step, and draws its tokens of position ``p`` + 1. Source: LMGen of moshi 0.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.worker.models.moshi.depth import DepthTransformer
from engine.worker.models.moshi.sizes import MoshiSizes
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.device import to_device
from engine.worker.nn.quantized import linear
from engine.worker.nn.sampler import draw
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams
from engine.worker.nn.slots import CachePositions, OneRow
from engine.worker.nn.weights import WeightReader

TEXT = 0
"""The random stream of text."""
TEXT_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_k": 25, "top_p": 1.0}
CODE_SAMPLING: dict[str, Any] = {"temperature": 0.8, "top_k": 250, "top_p": 1.0}
"""How tokens are drawn, as by the servers of moshi and personaplex."""


class MoshiLm:
    """The language model with the past of each slot: keys and values of ``window`` positions, and recent tokens."""

    def __init__(self, read: WeightReader, sizes: MoshiSizes, slots: int, window: int) -> None:
        width, books = sizes.temporal.hidden_size, sizes.own + sizes.user
        self.sizes = sizes
        self.window = window
        self.device = read.device
        self.dtype = read.dtype
        self.temporal = TransformerDecoder(read.below("temporal"), sizes.temporal)
        self.cache = self.temporal.cache(slots, window)
        self.text_table = read("text_embedding.weight", sizes.text_ids + 1, width)
        names = [f"embeddings.{book}.weight" for book in range(books)]
        self.code_tables = read.joined(names, [sizes.codes + 1] * books, width)
        self.text_head = read.linear(("text_head",), (sizes.drawn_ids,), width)
        self.depth = DepthTransformer(read.below("depth"), sizes, slots)
        self.initial = to_device([sizes.text_ids, *[sizes.codes] * books], read.device)
        """The tokens that streams have before their first one [streams]."""
        self.delays = to_device(sizes.delays, read.device)
        self.tokens = torch.zeros(slots, 1 + books, sizes.lag + 2, dtype=torch.long, device=read.device)
        """The tokens of position ``p`` in each stream, at ``p`` modulo the last size."""
        self._offsets = torch.arange(books, device=read.device) * (sizes.codes + 1)
        self._streams = torch.arange(1 + books, device=read.device)

    def step(self, slots: Tensor, positions: Tensor, heard: Tensor, params: BatchSamplingParams, length: int) -> Tensor:
        """Compute one position of each session, and return the tokens of its newest complete frame.

        Args:
            slots: Slots [batch].
            positions: Their positions [batch].
            heard: Codes of the user's frame [batch, user's codebooks].
            params: Seeds and greediness of the batch.
            length: Positions of the cache that are read; above all ``positions``, or the window.

        Returns:
            Text and own codes [batch, 1 + own codebooks] of the frame ``lag`` - 1 positions ago. ``FAILED`` where the
            logits were NaN. Before the first ``lag`` positions, some are initial tokens.
        """
        own = 1 + self.sizes.own
        self._write(slots, self._streams[own:], positions[:, None] + self.delays[own:], heard)
        now = self._read(slots, self._streams, positions[:, None])
        now = torch.where(positions[:, None] <= self.delays, self.initial, now)
        angles = self.temporal.angles(positions[:, None].float())
        where = self._ring(slots, positions, length)
        hidden = self.temporal.step(self.embedded(now)[:, None], angles, where, self.cache)[:, 0]
        drawn = self.drawn(hidden, params, positions)
        self._write(slots, self._streams[:own], positions[:, None] + 1, drawn.clamp(min=0))
        found = self._read(slots, self._streams[:own], positions[:, None] + 1 - self.sizes.lag + self.delays[:own])
        return torch.where((drawn < 0).any(-1, keepdim=True), FAILED, found)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return the input rows [n, width] of positions with these tokens [n, streams]."""
        return self.code_tables[tokens[:, 1:] + self._offsets].sum(1) + self.text_table[tokens[:, 0]]

    def drawn(self, hidden: Tensor, params: BatchSamplingParams, positions: Tensor) -> Tensor:
        """Draw the text and own codes [batch, 1 + own codebooks] that follow hidden rows [batch, width]."""
        text = draw(linear(hidden, self.text_head), params.fixed(**TEXT_SAMPLING), TEXT, positions)
        codes = self.depth(hidden, text, params.fixed(**CODE_SAMPLING), positions)
        return torch.cat((text[:, None], codes), 1)

    def fed(self, slot: int, start: int, rows: Tensor) -> Tensor:
        """Compute given input rows [n, width] of a slot from position ``start``; return the last hidden row [1, width].

        They must fit in the window.
        """
        where = CachePositions.of(self.cache, [slot], [start], len(rows))
        positions = torch.arange(start, start + len(rows), device=self.device)[None].float()
        hidden, _ = self.temporal.forward(rows[None], self.temporal.angles(positions), where, self.cache)
        return hidden[:, -1]

    def force(self, slot: int, position: int, tokens: Tensor) -> None:
        """Set the tokens [streams] that a slot reads at its next position."""
        self.tokens[slot, :, position % self.tokens.shape[2]] = tokens

    def _ring(self, slots: Tensor, positions: Tensor, length: int) -> OneRow:
        """Return where rows are in the cache: once a slot is full, each row takes the place of its oldest one.

        Attention does not depend on the order of keys, which contain their positions.
        """
        where = self.temporal.one_row(self.cache, slots, positions.clamp(max=self.window - 1), length)
        return replace(where, at=self.cache.begins[slots] + positions % self.window)

    def _write(self, slots: Tensor, streams: Tensor, at: Tensor, tokens: Tensor) -> None:
        """Store tokens [batch, n] of some streams at positions [batch, n or 1]."""
        self.tokens[slots[:, None], streams, at % self.tokens.shape[2]] = tokens

    def _read(self, slots: Tensor, streams: Tensor, at: Tensor) -> Tensor:
        return self.tokens[slots[:, None], streams, at % self.tokens.shape[2]]
