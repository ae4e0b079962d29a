"""Building blocks of non-streaming encoders for sounds and pictures. Each row attends to all rows of its own segment.

Source: the audio and vision encoders of transformers 5.23, models/qwen2_5_omni and models/qwen3_omni_moe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.device import to_device
from engine.worker.nn.rope import rotate
from engine.worker.nn.weights import WeightReader

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return an activation function by its name in config.json. Raises WeightsError for an unsupported one."""
    if name not in _ACTIVATIONS:
        raise WeightsError(
            f"config.json: the activation {name!r:.80} is not supported (supported: {', '.join(_ACTIVATIONS)})"
        )
    return _ACTIVATIONS[name]


class Linear:
    """Linear layer: rows [..., width] → [..., out]."""

    def __init__(self, read: WeightReader, width: int, out: int, biased: bool = True) -> None:
        self.weight = read("weight", out, width)
        self.bias = read("bias", out) if biased else None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class LayerNorm:
    """Layer normalization with weight and bias."""

    def __init__(self, read: WeightReader, width: int, eps: float = 1e-5) -> None:
        self.weight = read("weight", width)
        self.bias = read("bias", width)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


Segments = Sequence[int] | Tensor
"""Segments of concatenated rows; each row attends to its own segment. Either the number of rows of each segment, or,
for segments padded to one length, a mask [segments, length] of the valid rows.
"""


def attend(query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> Tensor:
    """Attend within segments: [rows, heads, dim] → [rows, heads · dim]."""
    if isinstance(segments, Tensor):
        q, k, v = (x.unflatten(0, segments.shape).transpose(1, 2) for x in (query, key, value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=segments[:, None, None])
        return mixed.transpose(1, 2).reshape(len(query), -1)
    counts = segments
    parts = [x.transpose(0, 1)[None].split(list(counts), 2) for x in (query, key, value)]
    scale = query.shape[-1] ** -0.5
    found = [
        F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2)
        for q, k, v in zip(parts[0], parts[1], parts[2], strict=True)
    ]
    return torch.cat(found, 1).reshape(len(query), -1)


class AudioLayer:
    """Layer of Whisper's encoder (Radford et al. 2022), with pre-norm; positions were added to the input."""

    def __init__(self, read: WeightReader, config: Any, key_biased: bool) -> None:
        width, inner, attention = config.d_model, config.encoder_ffn_dim, read.below("self_attn")
        self.heads = config.encoder_attention_heads
        self.activate = activation(config.activation_function)
        self.query, self.value = (Linear(attention.below(f"{name}_proj"), width, width) for name in "qv")
        self.key = Linear(attention.below("k_proj"), width, width, key_biased)
        self.out = Linear(attention.below("out_proj"), width, width)
        self.up = Linear(read.below("fc1"), width, inner)
        self.down = Linear(read.below("fc2"), inner, width)
        self.before = LayerNorm(read.below("self_attn_layer_norm"), width)
        self.between = LayerNorm(read.below("final_layer_norm"), width)

    def __call__(self, x: Tensor, segments: Segments) -> Tensor:
        y = self.before(x)
        query, key, value = (part(y).view(len(y), self.heads, -1) for part in (self.query, self.key, self.value))
        x = x + self.out(attend(query, key, value, segments))
        return x + self.down(self.activate(self.up(self.between(x))))


def sinusoids(count: int, width: int, device: torch.device) -> Tensor:
    """Return float32 position embeddings [count, width]: sines, then cosines (Vaswani et al. 2017)."""
    rates = torch.exp(-(np.log(10000) / (width // 2 - 1)) * torch.arange(width // 2).float())
    angles = torch.arange(count)[:, None] * rates[None]
    return torch.cat((angles.sin(), angles.cos()), 1).to(device)


def pieces(lengths: Sequence[int], most: int) -> list[int]:
    """Return the lengths of the pieces of at most ``most`` into which each length is cut."""
    return [min(most, length - at) for length in lengths for at in range(0, length, most)]


def padded(mel: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return pieces [pieces, mels, longest] of concatenated frames [mels, frames], padded with zeros."""
    return torch.nn.utils.rnn.pad_sequence(list(mel.T.split(list(sizes))), batch_first=True).transpose(1, 2)


def unpadded(x: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the first ``counts[i]`` rows of each piece of ``x`` [pieces, rows, width], concatenated."""
    starts = np.arange(len(counts)) * x.shape[1]
    indices = np.concatenate([start + np.arange(count) for start, count in zip(starts, counts, strict=True)])
    return x.reshape(-1, x.shape[-1])[to_device(indices, x.device)]


Grid = tuple[int, int]
"""Height and width of a picture in patches."""


def patch_positions(grid: Grid, merge: int) -> Tensor:
    """Return the rows and columns [2, patches] of a picture's patches, ordered by cells of ``merge`` by ``merge``."""
    high, wide = grid
    both = torch.stack(torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij"))
    return both.view(2, high // merge, merge, wide // merge, merge).transpose(2, 3).flatten(1)


class PlaneRope:
    """Two-dimensional rotary positions: half of a head's channels encode the row, half the column."""

    def __init__(self, dim: int, theta: float, merge: int, device: torch.device) -> None:
        half = dim // 2
        self._rates = 1.0 / theta ** (torch.arange(0, half, 2, dtype=torch.float) / half)
        self._merge = merge
        self._device = device

    def __call__(self, grids: Sequence[Grid]) -> tuple[Tensor, Tensor]:
        """Return cosine and sine [patches, 1, dim] for the concatenated patches of pictures."""
        found = torch.cat([patch_positions(grid, self._merge) for grid in grids], 1)
        angles = found[..., None].float() * self._rates
        angles = torch.cat((*angles, *angles), -1)[:, None].to(self._device, non_blocking=True)
        return angles.cos(), angles.sin()


def turned(heads: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary positions to heads [patches, heads, dim] in float32."""
    return rotate(heads.float(), *angles).to(heads.dtype)


class Merger:
    """Merges the patches of each cell into one row. ``norm`` applies to patches, or to whole cells if ``late``."""

    def __init__(
        self, read: WeightReader, norm: Callable[[Tensor], Tensor], width: int, out: int, late: bool = False
    ) -> None:
        self.norm = norm
        self.width = width
        self.late = late
        self.up = Linear(read.below("mlp.0"), width, width)
        self.down = Linear(read.below("mlp.2"), width, out)

    def __call__(self, x: Tensor) -> Tensor:
        cells = self.norm(x.view(-1, self.width)) if self.late else self.norm(x).view(-1, self.width)
        return self.down(F.gelu(self.up(cells)))
