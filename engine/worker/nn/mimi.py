"""Mimi, a streaming neural audio codec (Défossez et al. 2024): sound to codes and back, with each slot's past.

Source: MimiModel of transformers 5.23, with the tensor names of its checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.conv import CausalConv, CausalTransposedConv, ConvBatch, ConvState
from engine.worker.nn.encoder import LayerNorm, activation
from engine.worker.nn.quantized import linear
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.settings import settings_of
from engine.worker.nn.weights import WeightReader
from engine.worker.nn.window import SlidingWindow, WindowCache

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
    "trim_right_ratio": 1.0,
    "compress": 2,
    "codebook_size": 2048,
    "codebook_dim": 256,
    "num_quantizers": 32,
    "use_conv_shortcut": False,
    "vector_quantization_hidden_dimension": 256,
    "num_semantic_quantizers": 1,
    "upsample_groups": 512,
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
"""Fields of the codec's configuration, with the defaults for omitted ones."""
UNREAD = (
    "audio_channels",
    "use_causal_conv",
    "use_conv_shortcut",
    "attention_bias",
    "pad_mode",
    "trim_right_ratio",
)
"""Fields for which only the default value is supported."""


def mimi_sizes(config: Mapping[str, Any], where: str) -> Any:
    """Return a codec's configuration as attributes; ``where`` names it in errors.

    Adds ``stride``, the columns of the transformers per frame, and ``frame_samples``.
    """
    sizes = settings_of(config, DEFAULTS)
    for name in UNREAD:
        if getattr(sizes, name) != DEFAULTS[name]:
            raise WeightsError(f"{where}.{name}={getattr(sizes, name)} is not supported")
    column = math.prod(sizes.upsampling_ratios)
    sizes.stride = int(math.ceil(sizes.sampling_rate / column) / sizes.frame_rate)
    sizes.frame_samples = column * sizes.stride
    return sizes


class MimiEncoder:
    """Encodes sound to the codes of the first ``groups`` codebooks."""

    def __init__(self, read: WeightReader, sizes: Any, groups: int, slots: int = 1) -> None:
        self.steps = _encoder_steps(read.below("encoder"), sizes, slots)
        self.transformer = _Transformer(read.below("encoder_transformer"), sizes, slots)
        self.last = _Downsample(read.below("downsample"), sizes, slots)
        self.stride = sizes.stride
        self.books = [books for books in _split(read.below("quantizer"), sizes, groups) if books.vectors]

    def __call__(self, wave: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        """Return the codes [batch, frames, groups] of the next samples [batch, samples].

        ``starts`` [batch] are the frames that each slot has had. Only a signal's last piece may end within a frame.
        """
        x = wave[:, None]
        for step in self.steps:
            x = step(x, piece)
        x = self.transformer(x, starts * self.stride, piece)
        x = self.last(x, starts, piece).transpose(1, 2)
        return torch.cat([books.encode(x) for books in self.books], -1)


class MimiDecoder:
    """Decodes frames of ``groups`` codes to sound."""

    def __init__(self, read: WeightReader, sizes: Any, groups: int, slots: int) -> None:
        width, stride = sizes.hidden_size, sizes.stride
        self.books = [books for books in _split(read.below("quantizer"), sizes, groups) if books.vectors]
        self.widen = CausalTransposedConv(
            read.below("upsample"), slots, width, width, 2 * stride, stride, False, sizes.upsample_groups, False
        )
        self.stride = stride
        self.transformer = _Transformer(read.below("decoder_transformer"), sizes, slots)
        self.steps = _decoder_steps(read.below("decoder"), sizes, slots)

    def __call__(self, codes: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        """Return the sound [batch, samples] of the next frames [batch, frames, groups].

        ``starts`` [batch] are the frames that each slot has had.
        """
        parts = codes.split([len(books.vectors) for books in self.books], -1)
        x = sum((books.decode(part) for books, part in zip(self.books, parts, strict=True)), codes.new_zeros(()))
        x = self.widen(x.transpose(1, 2), piece)
        x = self.transformer(x, starts * self.stride, piece)
        for step in self.steps:
            x = step(x, piece)
        return x[:, 0]


def _encoder_steps(read: WeightReader, sizes: Any, slots: int) -> list[Any]:
    """Return the convolutions in file order; each omitted index of the file is an ELU."""
    width = sizes.num_filters
    found: list[Any] = [CausalConv(read.below("layers.0"), slots, 1, width, sizes.kernel_size)]
    number = 1
    for ratio in reversed(sizes.upsampling_ratios):
        found += _residuals(read, number, sizes, width, slots)
        number += sizes.num_residual_layers + 1
        narrow = CausalConv(read.below(f"layers.{number}"), slots, width, 2 * width, 2 * ratio, stride=ratio)
        found += [_elu, narrow]
        number, width = number + 1, 2 * width
    last = CausalConv(read.below(f"layers.{number + 1}"), slots, width, sizes.hidden_size, sizes.last_kernel_size)
    return [*found, _elu, last]


def _decoder_steps(read: WeightReader, sizes: Any, slots: int) -> list[Any]:
    """Return the convolutions in file order, as ``_encoder_steps``."""
    width = sizes.num_filters << len(sizes.upsampling_ratios)
    found: list[Any] = [CausalConv(read.below("layers.0"), slots, sizes.hidden_size, width, sizes.kernel_size)]
    number = 2
    for ratio in sizes.upsampling_ratios:
        wide = read.below(f"layers.{number}")
        found += [_elu, CausalTransposedConv(wide, slots, width, width // 2, 2 * ratio, ratio, late=False)]
        width //= 2
        found += _residuals(read, number + 1, sizes, width, slots)
        number += sizes.num_residual_layers + 2
    return [*found, _elu, CausalConv(read.below(f"layers.{number}"), slots, width, 1, sizes.last_kernel_size)]


def _residuals(read: WeightReader, first: int, sizes: Any, width: int, slots: int) -> list[Any]:
    return [
        _Residual(read.below(f"layers.{first + i}"), sizes, width, sizes.dilation_growth_rate**i, slots)
        for i in range(sizes.num_residual_layers)
    ]


def _elu(x: Tensor, piece: ConvBatch) -> Tensor:
    return F.elu(x)


class _Residual:
    """Residual block: a wide convolution with fewer channels, then one of kernel size 1."""

    def __init__(self, read: WeightReader, sizes: Any, width: int, dilation: int, slots: int) -> None:
        inner = width // sizes.compress
        self.wide = CausalConv(read.below("block.1"), slots, width, inner, sizes.residual_kernel_size, dilation)
        self.narrow = CausalConv(read.below("block.3"), slots, inner, width, 1)

    def __call__(self, x: Tensor, piece: ConvBatch) -> Tensor:
        return x + self.narrow(F.elu(self.wide(F.elu(x), piece)), piece)


class _Downsample:
    """Convolution from the transformer's columns to frames. Its first and last columns continue at the edges."""

    def __init__(self, read: WeightReader, sizes: Any, slots: int) -> None:
        self.stride = sizes.stride
        self.weight = read("conv.weight", sizes.hidden_size, sizes.hidden_size, 2 * self.stride)
        self._state = ConvState(slots, sizes.hidden_size, self.stride, read.device, read.dtype)

    def __call__(self, x: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        whole = self._state.before(x, piece)
        new = (starts == 0)[:, None, None]
        whole = torch.cat((torch.where(new, x[..., :1], whole[..., : self.stride]), x), -1)
        missing = -x.shape[-1] % self.stride
        if missing:
            whole = F.pad(whole, (0, missing), "replicate")
        return F.conv1d(whole, self.weight, stride=self.stride)


class _Transformer:
    """Causal layers with sliding-window attention: columns [batch, width, columns] to columns."""

    def __init__(self, read: WeightReader, sizes: Any, slots: int) -> None:
        dim = sizes.head_dim or sizes.hidden_size // sizes.num_attention_heads
        self.rope = Rope(dim, sizes.rope_parameters["rope_theta"], read.device)
        self.layers = [_Layer(read.below(f"layers.{i}"), sizes, dim) for i in range(sizes.num_hidden_layers)]
        heads, window = sizes.num_key_value_heads, sizes.sliding_window
        self.cache = WindowCache(len(self.layers), slots, heads, window, dim, read.device, read.dtype)

    def __call__(self, columns: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        x = columns.transpose(1, 2)
        positions = starts[:, None] + torch.arange(x.shape[1], device=x.device)
        angles = self.rope(positions.float(), x.dtype)
        where = self.cache.window(piece.index, starts, x.shape[1])
        for i, layer in enumerate(self.layers):
            x = layer(x, angles, where, self.cache.keys[i], self.cache.values[i])
        return x.transpose(1, 2)


class _Layer:
    """Attention and feed-forward network with pre-norm, each output scaled per channel before it is added."""

    def __init__(self, read: WeightReader, sizes: Any, dim: int) -> None:
        width, inner, attention = sizes.hidden_size, sizes.intermediate_size, read.below("self_attn")
        self.dim = dim
        self.activate = activation(sizes.hidden_act)
        self.heads = (sizes.num_attention_heads, sizes.num_key_value_heads, sizes.num_key_value_heads)
        self.qkv = attention.linear(("q_proj", "k_proj", "v_proj"), [n * dim for n in self.heads], width)
        self.out = attention.linear(("o_proj",), (width,), self.heads[0] * dim)
        self.up = read.linear(("mlp.fc1",), (inner,), width)
        self.down = read.linear(("mlp.fc2",), (width,), inner)
        self.before = LayerNorm(read.below("input_layernorm"), width, sizes.norm_eps)
        self.between = LayerNorm(read.below("post_attention_layernorm"), width, sizes.norm_eps)
        self.attention_scale = read("self_attn_layer_scale.scale", width)
        self.feed_scale = read("mlp_layer_scale.scale", width)

    def __call__(
        self, x: Tensor, angles: tuple[Tensor, Tensor], where: SlidingWindow, keys: Tensor, values: Tensor
    ) -> Tensor:
        heads = linear(self.before(x), self.qkv).unflatten(-1, (sum(self.heads), self.dim)).transpose(1, 2)
        query, key, value = heads.split(self.heads, 1)
        mixed = where.mix(rotate(query, *angles), rotate(key, *angles), value, keys, values)
        x = x + self.attention_scale * linear(mixed.transpose(1, 2).flatten(2), self.out)
        return x + self.feed_scale * linear(self.activate(linear(self.between(x), self.up)), self.down)


def _split(read: WeightReader, sizes: Any, groups: int) -> list[_Books]:
    """Return the semantic and the acoustic codebooks, ``groups`` in all. Raises WeightsError if there are fewer."""
    if groups > sizes.num_quantizers:
        raise WeightsError(
            f"{read.checkpoint.folder}: the codec has {sizes.num_quantizers} codebooks, but the model needs {groups}."
        )
    first = min(sizes.num_semantic_quantizers, groups)
    return [
        _Books(read.below("semantic_residual_vector_quantizer"), sizes, first),
        _Books(read.below("acoustic_residual_vector_quantizer"), sizes, groups - first),
    ]


class _Books:
    """Residual vector quantizer: each codebook encodes the remainder of the previous ones."""

    def __init__(self, read: WeightReader, sizes: Any, count: int) -> None:
        inner, width = sizes.vector_quantization_hidden_dimension, sizes.hidden_size
        self.into = self.out = None
        if "input_proj.weight" in read:
            self.into = read("input_proj.weight", inner, width, 1)[..., 0]
        if "output_proj.weight" in read:
            self.out = read("output_proj.weight", width, inner, 1)[..., 0]
        self.vectors = [_book(read.below(f"layers.{i}.codebook"), sizes) for i in range(count)]

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes [batch, frames, books] of rows [batch, frames, width]."""
        left = x.flatten(0, 1)
        left = left if self.into is None else F.linear(left, self.into)
        found = list[Tensor]()
        for vectors in self.vectors:
            found.append(torch.cdist(left[None], vectors[None])[0].argmin(-1))
            left = left - vectors[found[-1]]
        return torch.stack(found, -1).unflatten(0, x.shape[:2])

    def decode(self, codes: Tensor) -> Tensor:
        """Return the rows [batch, frames, width] of codes [batch, frames, books]."""
        total = self.vectors[0][codes[..., 0]]
        for i, vectors in enumerate(self.vectors[1:], 1):
            total = total + vectors[codes[..., i]]
        return total if self.out is None else F.linear(total, self.out)


def _book(read: WeightReader, sizes: Any) -> Tensor:
    """Return vectors [codes, dim]; the file stores them as sums with usage counts."""
    use = read("cluster_usage", sizes.codebook_size).clamp(min=1e-5)
    return read("embed_sum", sizes.codebook_size, sizes.codebook_dim) / use[:, None]
