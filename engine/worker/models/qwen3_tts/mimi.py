"""The codec's encoder, Mimi (Défossez et al. 2024): encodes a whole recording to codec frames.

Source: MimiModel of transformers 5.23, with the tensor names of the vendor's files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.encoder import LayerNorm, Linear, activation
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.settings import settings_of
from engine.worker.nn.weights import WeightReader

DEFAULTS: dict[str, Any] = {
    "sampling_rate": 24_000,
    "audio_channels": 1,
    "hidden_size": 512,
    "num_filters": 64,
    "num_residual_layers": 1,
    "upsampling_ratios": (8, 6, 5, 4),
    "kernel_size": 7,
    "last_kernel_size": 3,
    "residual_kernel_size": 3,
    "dilation_growth_rate": 2,
    "use_causal_conv": True,
    "pad_mode": "constant",
    "compress": 2,
    "codebook_size": 2048,
    "codebook_dim": 256,
    "use_conv_shortcut": False,
    "vector_quantization_hidden_dimension": 256,
    "num_semantic_quantizers": 1,
    "num_hidden_layers": 8,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": None,
    "hidden_act": "gelu",
    "norm_eps": 1e-5,
    "sliding_window": 250,
    "attention_bias": False,
    "rope_parameters": {"rope_theta": 1e4},
    "frame_rate": 12.5,
}
"""Fields of the encoder's configuration, with the defaults for omitted ones."""
UNREAD = ("audio_channels", "use_causal_conv", "use_conv_shortcut", "attention_bias", "pad_mode")
"""Fields for which only the default value is supported."""


class MimiEncoder:
    """Convolutions down to the codec's frame rate, causal transformer layers, and ``groups`` residual codebooks."""

    def __init__(self, read: WeightReader, config: Mapping[str, Any], groups: int) -> None:
        sizes = settings_of(config, DEFAULTS)
        for name in UNREAD:
            if getattr(sizes, name) != DEFAULTS[name]:
                raise WeightsError(
                    f"{read.checkpoint.folder}: encoder_config.{name}={getattr(sizes, name)} is not supported"
                )
        dim = sizes.head_dim or sizes.hidden_size // sizes.num_attention_heads
        self.steps = _steps(read.below("encoder"), sizes)
        self.window = sizes.sliding_window
        self.rope = Rope(dim, sizes.rope_parameters["rope_theta"], read.device)
        layers = read.below("encoder_transformer")
        self.layers = [_Layer(layers.below(f"layers.{i}"), sizes, dim) for i in range(sizes.num_hidden_layers)]
        width, rate = sizes.hidden_size, sizes.sampling_rate / math.prod(sizes.upsampling_ratios)
        stride = int(math.ceil(rate) / sizes.frame_rate)
        self.last = _Conv(read.below("downsample"), width, width, 2 * stride, stride, biased=False)
        quantizer, first = read.below("quantizer"), sizes.num_semantic_quantizers
        self.books = [
            _Books(quantizer.below("semantic_residual_vector_quantizer"), sizes, min(first, groups)),
            _Books(quantizer.below("acoustic_residual_vector_quantizer"), sizes, groups - first),
        ]

    def __call__(self, wave: Tensor) -> Tensor:
        """Return the codes [groups, frames] of a recording [samples]; the last frame is zero-padded."""
        x = wave[None, None]
        for step in self.steps:
            x = step(x)
        x = x.transpose(1, 2)
        at = torch.arange(x.shape[1], device=x.device)
        apart = at[:, None] - at
        seen, angles = (apart >= 0) & (apart < self.window), self.rope(at[None].float(), x.dtype)
        for layer in self.layers:
            x = layer(x, angles, seen)
        x = self.last(x.transpose(1, 2), mode="replicate")[0].T
        return torch.cat([books(x) for books in self.books])


def _steps(read: WeightReader, sizes: Any) -> list[Any]:
    """Return the convolutions in file order; each omitted index of the file is an ELU."""
    width = sizes.num_filters
    found: list[Any] = [_Conv(read.below("layers.0"), 1, width, sizes.kernel_size)]
    number = 1
    for ratio in reversed(sizes.upsampling_ratios):
        for i in range(sizes.num_residual_layers):
            found.append(_Residual(read.below(f"layers.{number}"), sizes, width, sizes.dilation_growth_rate**i))
            number += 1
        found += [F.elu, _Conv(read.below(f"layers.{number + 1}"), width, 2 * width, 2 * ratio, ratio)]
        number, width = number + 2, 2 * width
    return [*found, F.elu, _Conv(read.below(f"layers.{number + 1}"), width, sizes.hidden_size, sizes.last_kernel_size)]


class _Conv:
    """Causal convolution; every stride that has begun gives an output column."""

    def __init__(
        self,
        read: WeightReader,
        into: int,
        out: int,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        biased: bool = True,
    ) -> None:
        self.weight = read("conv.weight", out, into, kernel)
        self.bias = read("conv.bias", out) if biased else None
        self.stride = stride
        self.dilation = dilation
        self.before = (kernel - 1) * dilation + 1 - stride

    def __call__(self, x: Tensor, mode: str = "constant") -> Tensor:
        x = F.pad(x, (self.before, -x.shape[-1] % self.stride), mode)
        return F.conv1d(x, self.weight, self.bias, self.stride, dilation=self.dilation)


class _Residual:
    """Residual block: a wide convolution with fewer channels, then one of kernel size 1."""

    def __init__(self, read: WeightReader, sizes: Any, width: int, dilation: int) -> None:
        inner = width // sizes.compress
        self.wide = _Conv(read.below("block.1"), width, inner, sizes.residual_kernel_size, dilation=dilation)
        self.narrow = _Conv(read.below("block.3"), inner, width, 1)

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.elu(self.wide(F.elu(x))))


class _Layer:
    """Attention and feed-forward network with pre-norm, each output scaled per channel before it is added."""

    def __init__(self, read: WeightReader, sizes: Any, dim: int) -> None:
        width, inner, attention = sizes.hidden_size, sizes.intermediate_size, read.below("self_attn")
        self.dim = dim
        self.activate = activation(sizes.hidden_act)
        heads = {"q": sizes.num_attention_heads, "k": sizes.num_key_value_heads, "v": sizes.num_key_value_heads}
        self.query, self.key, self.value = (
            Linear(attention.below(f"{name}_proj"), width, count * dim, biased=False) for name, count in heads.items()
        )
        self.out = Linear(attention.below("o_proj"), heads["q"] * dim, width, biased=False)
        self.up = Linear(read.below("mlp.fc1"), width, inner, biased=False)
        self.down = Linear(read.below("mlp.fc2"), inner, width, biased=False)
        self.before = LayerNorm(read.below("input_layernorm"), width, sizes.norm_eps)
        self.between = LayerNorm(read.below("post_attention_layernorm"), width, sizes.norm_eps)
        self.attention_scale = read("self_attn_layer_scale.scale", width)
        self.feed_scale = read("mlp_layer_scale.scale", width)

    def __call__(self, x: Tensor, angles: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
        y = self.before(x)
        query, key, value = (
            part(y).unflatten(-1, (-1, self.dim)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, *angles), rotate(key, *angles)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)
        x = x + self.attention_scale * self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_scale * self.down(self.activate(self.up(self.between(x))))


class _Books:
    """Residual vector quantizer: each codebook encodes the remainder of the previous ones."""

    def __init__(self, read: WeightReader, sizes: Any, count: int) -> None:
        inner = sizes.vector_quantization_hidden_dimension
        self.project = (
            read("input_proj.weight", inner, sizes.hidden_size, 1)[..., 0] if inner != sizes.hidden_size else None
        )
        self.vectors = [_book(read.below(f"layers.{i}.codebook"), sizes) for i in range(count)]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the codes [books, frames] of rows [frames, width]."""
        left = x if self.project is None else F.linear(x, self.project)
        found = list[Tensor]()
        for vectors in self.vectors:
            found.append(torch.cdist(left[None], vectors[None])[0].argmin(-1))
            left = left - vectors[found[-1]]
        return torch.stack(found) if found else x.new_zeros((0, len(x)), dtype=torch.long)


def _book(read: WeightReader, sizes: Any) -> Tensor:
    """Return vectors [codes, dim]; the file stores them as sums with usage counts."""
    use = read("cluster_usage", sizes.codebook_size).clamp(min=1e-5)
    return read("embed_sum", sizes.codebook_size, sizes.codebook_dim) / use[:, None]
