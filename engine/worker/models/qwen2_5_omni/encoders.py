"""Audio and vision encoders, which produce input rows of the thinker.

Source: transformers 5.23, models/qwen2_5_omni.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn import encoder
from engine.worker.nn.decoder import rms_norm
from engine.worker.nn.device import to_device
from engine.worker.nn.encoder import Grid, LayerNorm, Linear, Merger
from engine.worker.nn.weights import WeightReader

NORM_EPS = 1e-6


class Qwen2_5OmniAudioEncoder:
    """Encodes pieces of 2 ``n_window`` mel frames independently of each other, then averages pairs of rows."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        width = config.d_model
        mels = config.num_mel_bins
        self.piece = 2 * config.n_window
        self.first = read("conv1.weight", width, mels, 3), read("conv1.bias", width)
        self.second = read("conv2.weight", width, width, 3), read("conv2.bias", width)
        self.times = encoder.sinusoids(config.max_source_positions, width, read.device)
        self.layers = [
            encoder.AudioLayer(read.below(f"layers.{i}"), config, key_biased=False)
            for i in range(config.encoder_layers)
        ]
        self.norm = LayerNorm(read.below("ln_post"), width)
        self.out = Linear(read.below("proj"), width, config.output_dim)

    def __call__(self, mel: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the rows [rows, width] of audio clips.

        Their mel frames [mels, frames] are concatenated, ``lengths`` frames each.
        """
        sizes = encoder.pieces(lengths, self.piece)
        counts = [_halved(size) for size in sizes]
        x = encoder.padded(mel, sizes)
        real = torch.arange(x.shape[2]) < torch.tensor(sizes)[:, None, None]
        x = F.gelu(F.conv1d(x, *self.first, padding=1)) * real.to(x.device, non_blocking=True)
        x = F.gelu(F.conv1d(x, *self.second, stride=2, padding=1)).transpose(1, 2)
        x = encoder.unpadded(x + self.times[: x.shape[1]].to(x.dtype), counts)
        for layer in self.layers:
            x = layer(x, counts)
        pairs = [
            one[: len(one) // 2 * 2].view(-1, 2, one.shape[1]) for one in x.split([_halved(one) for one in lengths])
        ]
        both = torch.cat(pairs)
        return self.out(self.norm((both[:, 0] + both[:, 1]) / 2))


def _halved(frames: int) -> int:
    """Return the output length of a convolution of stride 2."""
    return (frames - 1) // 2 + 1


class Qwen2_5OmniVisionEncoder:
    """Encodes patches with attention within windows, and in some layers within the whole picture."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        width = config.hidden_size
        self.merge = config.spatial_merge_size
        self.window = config.window_size // self.merge // config.patch_size  # side in merged cells
        patch = config.in_channels, config.temporal_patch_size, config.patch_size, config.patch_size
        self.enter = read("patch_embed.proj.weight", width, *patch)
        self.rope = encoder.PlaneRope(
            width // config.num_heads, config.rope_parameters["rope_theta"], self.merge, read.device
        )
        self.layers = [_Layer(read.below(f"blocks.{i}"), config) for i in range(config.depth)]
        self.whole = set(config.fullatt_block_indexes)
        norm = partial(rms_norm, weight=read("merger.ln_q.weight", width), eps=NORM_EPS)
        self.last = Merger(read.below("merger"), norm, width * self.merge**2, config.out_hidden_size)

    def __call__(self, pixels: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """Return the rows [cells, width] of pictures, whose patches ``pixels`` [patches, values] are concatenated."""
        order, windows = self._windows(grids)
        pictures = [high * wide for high, wide in grids]
        where = to_device(order, pixels.device)
        x = self._by_cells(F.linear(pixels, self.enter.flatten(1)), where)
        cosine, sine = (self._by_cells(one, where) for one in self.rope(grids))
        for number, layer in enumerate(self.layers):
            x = layer(x, (cosine, sine), pictures if number in self.whole else windows)
        return [self.last(x)[to_device(np.argsort(order), pixels.device)]]

    def _by_cells(self, x: Tensor, order: Tensor) -> Tensor:
        """Reorder patches [patches, …] by their merged cells."""
        return x.unflatten(0, (-1, self.merge**2))[order].flatten(0, 1)

    def _windows(self, grids: Sequence[Grid]) -> tuple[NDArray[np.int64], list[int]]:
        """Return the cells ordered by window, and the number of patches per window."""
        order: list[NDArray[np.int64]] = []
        counts: list[int] = []
        for high, wide in grids:
            down, across = np.indices((high // self.merge, wide // self.merge)) // self.window
            names = (down * wide + across).flatten()
            order.append(np.argsort(names, kind="stable") + sum(map(len, order)))
            counts += (np.unique(names, return_counts=True)[1] * self.merge**2).tolist()
        return np.concatenate(order), counts


class _Layer:
    """Attention and a gated feed-forward network with pre-norm."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        width = config.hidden_size
        inner = config.intermediate_size
        self.heads = config.num_heads
        self.before, self.between = (read(f"norm{i}.weight", width) for i in (1, 2))
        self.query, self.key, self.value = (Linear(read.below(f"attn.{name}"), width, width) for name in "qkv")
        self.out = Linear(read.below("attn.proj"), width, width)
        self.activate = encoder.activation(config.hidden_act)
        self.gate, self.up = (Linear(read.below(f"mlp.{name}_proj"), width, inner) for name in ("gate", "up"))
        self.down = Linear(read.below("mlp.down_proj"), inner, width)

    def __call__(self, x: Tensor, angles: tuple[Tensor, Tensor], counts: Sequence[int]) -> Tensor:
        y = rms_norm(x, self.before, NORM_EPS)
        query, key, value = (part(y).view(len(y), self.heads, -1) for part in (self.query, self.key, self.value))
        mixed = encoder.attend(encoder.turned(query, angles), encoder.turned(key, angles), value, counts)
        x = x + self.out(mixed)
        y = rms_norm(x, self.between, NORM_EPS)
        return x + self.down(self.activate(self.gate(y)) * self.up(y))
