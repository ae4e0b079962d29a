"""A stack of decoder layers with sliding-window attention, fed piece by piece, with per-slot state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn import decoder
from engine.worker.nn.conv import ConvBatch
from engine.worker.nn.decoder import rms_norm
from engine.worker.nn.rope import Rope
from engine.worker.nn.slots import Where
from engine.worker.nn.weights import WeightReader


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The past of some slots; ``mask`` [batch, 1, rows, past + rows] selects the visible positions."""

    slots: Tensor
    mask: Tensor

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Shift the past [slots, heads, past, dim] by the new rows, and attend."""
        count = key.shape[2]
        key = torch.cat((keys[self.slots], key), 2)
        value = torch.cat((values[self.slots], value), 2)
        keys[self.slots] = key[:, :, count:]
        values[self.slots] = value[:, :, count:]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask, enable_gqa=True)


class WindowCache:
    """The last ``length`` - 1 keys and values of each slot, oldest first, in every layer of a stack."""

    def __init__(
        self, layers: int, slots: int, heads: int, length: int, dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.past = length - 1
        self.keys = torch.zeros(layers, slots, heads, self.past, dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    @property
    def slot_caches(self) -> tuple[Tensor, Tensor]:
        """Keys and values [layers, slots, heads, past, dim]."""
        return self.keys, self.values

    def window(self, slots: Tensor, starts: Tensor, count: int) -> SlidingWindow:
        """Return what ``count`` new rows of each slot attend to, after its first ``starts`` [batch] rows.

        Positions before a slot's first row are masked.
        """
        rows = torch.arange(count, device=starts.device)[:, None]
        column = torch.arange(self.past + count, device=starts.device) - self.past  # relative to the first new row
        seen = (column <= rows) & (column >= rows - self.past)
        return SlidingWindow(slots, (seen & (column >= -starts[:, None, None]))[:, None])


class WindowedDecoder:
    """Decoder whose rows attend to themselves and the ``sliding_window`` - 1 rows before."""

    def __init__(self, read: WeightReader, config: Any, slots: int) -> None:
        self.eps = config.rms_norm_eps
        self.device = read.device
        config.head_norms = False
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.rope = Rope(dim, config.rope_parameters["rope_theta"], read.device)
        self.layers = [_Layer(read.below(f"layers.{i}"), config, dim) for i in range(config.num_hidden_layers)]
        self.norm = read("norm.weight", config.hidden_size)
        heads, window = config.num_key_value_heads, config.sliding_window
        self.cache = WindowCache(len(self.layers), slots, heads, window, dim, read.device, read.dtype)

    def forward(self, x: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        """Return the hidden rows of each slot's next rows ``x`` [batch, rows, width], after its first ``starts``
        [batch].
        """
        count = x.shape[1]
        positions = starts[:, None] + torch.arange(count, device=self.device)
        cos, sin = self.rope(positions.float(), x.dtype)
        where = self.cache.window(piece.index, starts, count)
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, cos, sin, where, self.cache.keys[i], self.cache.values[i])
        return rms_norm(x, self.norm, self.eps)


class _Layer(decoder.DecoderLayer):
    """Attention and gated feed-forward network, each scaled per channel (Touvron et al. 2021)."""

    def __init__(self, read: WeightReader, config: Any, dim: int) -> None:
        super().__init__(read, config, dim, sparse=False)
        self.attention_scale = read("self_attn_layer_scale.scale", config.hidden_size)
        self.feed_scale = read("mlp_layer_scale.scale", config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, where: Where, keys: Tensor, values: Tensor) -> Tensor:
        mixed = self._attend(rms_norm(x, self.before, self.eps), cos, sin, where, keys, values)
        x = x + self.attention_scale * mixed
        return x + self.feed_scale * self.feed(rms_norm(x, self.between, self.eps))
