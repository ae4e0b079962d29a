"""A stack of decoder layers that looks back over a fixed window, fed piece by piece; its past lies in slots."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.conv import Piece
from engine.worker.nn.decoder import Dense, rms_norm
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.weights import Reader


class WindowedDecoder:
    """Each row sees itself and the ``sliding_window`` − 1 rows before it; what is older is forgotten.

    The past of a slot is the last so many keys and values, oldest first; positions before the beginning are masked.
    """

    def __init__(self, read: Reader, config: Any, slots: int) -> None:
        self.past = config.sliding_window - 1
        self.eps = config.rms_norm_eps
        self.device = read.device
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.rope = Rope(dim, config.rope_parameters["rope_theta"], read.device)
        self.layers = [_Layer(read.below(f"layers.{i}"), config, dim) for i in range(config.num_hidden_layers)]
        self.norm = read("norm.weight", config.hidden_size)
        shape = (len(self.layers), slots, config.num_key_value_heads, self.past, dim)
        self.keys = torch.zeros(shape, device=read.device, dtype=read.dtype)
        self.values = torch.zeros_like(self.keys)

    @property
    def slot_caches(self) -> tuple[Tensor, Tensor]:
        """Keys and values [layers, slots, heads, past, dim]."""
        return self.keys, self.values

    def forward(self, x: Tensor, starts: Tensor, piece: Piece) -> Tensor:
        """Hidden rows of the next rows ``x`` [batch, rows, width] of each slot, which has had ``starts`` [batch] so
        far."""
        count = x.shape[1]
        positions = torch.arange(count, device=self.device)
        cos, sin = self.rope((starts[:, None] + positions).float(), x.dtype)
        column = torch.arange(self.past + count, device=self.device) - self.past  # relative to the first new row
        seen = (column <= positions[:, None]) & (column >= positions[:, None] - self.past)
        mask = (seen & (column >= -starts[:, None, None]))[:, None]
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, cos, sin, mask, piece, self.keys[i], self.values[i])
        return rms_norm(x, self.norm, self.eps)


class _Layer:
    """Attention and a gated part, each scaled channel by channel before it is added (Touvron et al. 2021)."""

    def __init__(self, read: Reader, config: Any, dim: int) -> None:
        width = config.hidden_size
        self.dim = dim
        self.eps = config.rms_norm_eps
        self.heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        sizes, attention = [n * dim for n in self.heads], read.below("self_attn")
        names, biased = ("q_proj", "k_proj", "v_proj"), getattr(config, "attention_bias", False)
        self.qkv = attention.joined([f"{name}.weight" for name in names], sizes, width)
        self.qkv_bias = attention.joined([f"{name}.bias" for name in names], sizes) if biased else None
        self.out = attention("o_proj.weight", width, sizes[0])
        self.out_bias = attention("o_proj.bias", width) if biased else None
        self.before = read("input_layernorm.weight", width)
        self.between = read("post_attention_layernorm.weight", width)
        self.attention_scale = read("self_attn_layer_scale.scale", width)
        self.feed_scale = read("mlp_layer_scale.scale", width)
        self.feed = Dense(read.below("mlp"), config)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, piece: Piece, keys: Tensor, values: Tensor
    ) -> Tensor:
        x = x + self.attention_scale * self._attend(
            rms_norm(x, self.before, self.eps), cos, sin, mask, piece, keys, values
        )
        return x + self.feed_scale * self.feed(rms_norm(x, self.between, self.eps))

    def _attend(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, piece: Piece, keys: Tensor, values: Tensor
    ) -> Tensor:
        batch, count, _ = x.shape
        heads = F.linear(x, self.qkv, self.qkv_bias).view(batch, count, sum(self.heads), self.dim).transpose(1, 2)
        query, key, value = heads.split(self.heads, 1)
        key = torch.cat((keys[piece.index], rotate(key, cos, sin)), 2)
        value = torch.cat((values[piece.index], value), 2)
        keys[piece.index], values[piece.index] = key[:, :, count:], value[:, :, count:]
        mixed = F.scaled_dot_product_attention(rotate(query, cos, sin), key, value, attn_mask=mask, enable_gqa=True)
        return F.linear(mixed.transpose(1, 2).reshape(batch, count, -1), self.out, self.out_bias)
